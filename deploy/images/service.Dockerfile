# The image of one service: EXTRA names the folder under services/, the extra in pyproject.toml and the lock in
# deploy/locks/. BASE is a Debian bookworm with Python 3.11; its pin stands in deploy/versions.env.
ARG BASE

FROM ${BASE} AS builder
WORKDIR /source
# pip stays in this stage: the environment that goes on has none.
RUN python -m venv /opt/pip && python -m venv --without-pip /opt/headrace
ARG EXTRA
COPY deploy/locks/${EXTRA}.txt lock.txt
# A company's package mirror comes in as a secret, which no layer keeps.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=cache,target=/root/.cache/pip \
    /opt/pip/bin/pip --python /opt/headrace/bin/python install --no-deps --require-hashes --requirement lock.txt
COPY contracts contracts
COPY services services
# A service may import others' folders, as those that replay do with services/replay, and the audit with alerting's rules.
RUN set -eu; \
    mkdir -p /app/services; \
    cp -r contracts /app/; \
    cp services/__init__.py /app/services/; \
    rooms="$({ echo "${EXTRA}"; grep -rhoE 'from services\.[a-z0-9_]+' "services/${EXTRA}" | sed 's/.*\.//'; } | sort -u)"; \
    for room in ${rooms}; do cp -r "services/${room}" /app/services/; done; \
    printf '#!/bin/sh\nexec python -m services.%s "$@"\n' "${EXTRA}" > /opt/headrace/bin/service; \
    chmod 755 /opt/headrace/bin/service

FROM ${BASE}
# What the base brings for installing packages has no work to do here.
RUN rm -rf /usr/local/lib/python3.11/site-packages/* /usr/local/lib/python3.11/ensurepip /usr/local/bin/pip* \
    && useradd --uid 1000 --user-group --no-create-home --home-dir /app --shell /usr/sbin/nologin headrace
COPY --from=builder /opt/headrace /opt/headrace
COPY --from=builder /app /app
ENV PATH=/opt/headrace/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HEADRACE_HTTP__HOST=0.0.0.0 \
    HEADRACE_HTTP__PORT=8080
ARG EXTRA
LABEL org.opencontainers.image.title="headrace-${EXTRA}" org.opencontainers.image.licenses="Apache-2.0"
WORKDIR /app
USER 1000:1000
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f\"http://127.0.0.1:{os.environ['HEADRACE_HTTP__PORT']}/health\", timeout=2)"]
ENTRYPOINT ["service"]
