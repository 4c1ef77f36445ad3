"""`Registry`: the client of a Confluent-compatible schema registry.

The protocol is Confluent's REST API (docs.confluent.io/platform/current/schema-registry/develop/api.html), of which
Apicurio serves version 7 under `/apis/ccompat/v7`.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
import structlog
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential_jitter

from contracts.errors import (
    RegistryError,
    RegistryRefused,
    RegistryUnavailable,
    SchemaIncompatible,
    UnknownSchemaId,
    UnknownSubject,
)
from contracts.servers.grace import Grace
from contracts.settings import RegistrySettings

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")

_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
_MOST_BYTES = 32 << 20
"""Of one answer. A schema takes some kilobytes."""
_SUBJECT_NOT_FOUND = 40401
_VERSION_NOT_FOUND = 40402
_SCHEMA_NOT_FOUND = 40403


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """One version of a subject; `id` is what records carry, unique in the whole registry, with gaps."""

    id: int
    subject: str
    version: int
    schema: str


class Registry:
    """Registers and looks up Avro schemas. Safe to share between threads; close it, or use it in a `with`.

    No answer, an answer 5xx, 429 or 408, a redirect, and any answer that is not the protocol's own are an outage: it is
    retried with growing pauses for `retry_seconds`, then raised as RegistryUnavailable; each piece of an answer may take
    `timeout_seconds`, a whole one twice that. An outage is logged once, however many calls it fails, and its end too. It is never taken for
    "unknown": that takes the protocol's own error code, and of an id more than that, see `by_id`.
    """

    def __init__(
        self, settings: RegistrySettings, *, retry_seconds: float = 30.0, timeout_seconds: float = 10.0
    ) -> None:
        if settings.token is not None and settings.username is not None:
            raise RegistryError("the registry takes a username and password or a token, not both")
        headers = {"Accept": f"{_MEDIA_TYPE}, application/json", "Content-Type": _MEDIA_TYPE}
        if settings.token is not None:
            headers["Authorization"] = f"Bearer {settings.token.get_secret_value()}"
        password = settings.password.get_secret_value() if settings.password is not None else ""
        self._client = httpx.Client(
            base_url=str(settings.url).rstrip("/"),
            headers=headers,
            auth=(settings.username, password) if settings.username is not None else None,
            verify=ssl.create_default_context(cafile=settings.ca_file),
            follow_redirects=False,  # a redirect would carry the credentials elsewhere
            trust_env=False,  # the settings alone say where to go: no proxy variable, no ~/.netrc
            timeout=httpx.Timeout(timeout_seconds, connect=min(3.0, timeout_seconds)),
        )
        host = f"{settings.url.host}:{settings.url.port}"
        self._where = f"schema registry at {host}"
        self._retry_seconds = retry_seconds
        self._timeout_seconds = timeout_seconds
        self._away = False
        # Ids never change their meaning while a registry keeps its data, so what is here stays right for the records that
        # were written then; `OwnSchema` and `TopicSchemas` notice one that was made anew. A dict is enough for threads: at
        # worst two of them ask the same question.
        self._by_id: dict[int, str] = {}
        self._of_subject: set[tuple[str, int]] = set()
        self.lag_seconds = settings.lag_seconds
        self._grace = Grace(settings.lag_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def register(self, subject: str, schema: str) -> int:
        """The id of `schema` under `subject`, which gets a new version if it did not have it.

        Raises SchemaIncompatible, naming what the registry names, or RegistryRefused if it is no valid schema.
        """
        answer = self._ask("POST", f"/subjects/{_quoted(subject)}/versions", {"schema": schema}, _read_id)
        if isinstance(answer, _No):
            if answer.status == 409 or "incompatible" in answer.message.lower():
                latest = self.latest(subject).version
                reason = answer.message.rpartition("Exception: ")[2]
                raise SchemaIncompatible(f"{subject}: version {latest + 1} may not follow version {latest}: {reason}")
            raise self._refusal(f"register a schema under {subject}", answer)
        self._by_id[answer] = schema
        return answer

    def id_of(self, subject: str, schema: str) -> int | None:
        """The id of `schema` under `subject`; None if it has no such version. Registers nothing."""
        answer = self._ask("POST", f"/subjects/{_quoted(subject)}", {"schema": schema}, _read_id)
        if isinstance(answer, _No):
            if answer.code in (_SUBJECT_NOT_FOUND, _VERSION_NOT_FOUND, _SCHEMA_NOT_FOUND):
                return None
            raise self._refusal(f"look up a schema under {subject}", answer)
        return answer

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest version of `subject`. Raises UnknownSubject if the registry has none."""
        return self._version(subject, "latest")

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """Every version of `subject`, oldest first. Raises UnknownSubject if the registry has none."""
        numbers = self._ask("GET", f"/subjects/{_quoted(subject)}/versions", None, _read_numbers)
        if isinstance(numbers, _No):
            raise self._no_subject(subject, numbers)
        found = []
        for number in sorted(numbers):
            with suppress(UnknownSubject):  # of the node that answers: it is behind the one that gave the numbers
                found.append(self._version(subject, str(number)))
        if not found:
            raise UnknownSubject(f"the {self._where} has no version of {subject}")
        return found

    def by_id(self, schema_id: int) -> str:
        """The schema with this id, as text (JSON, unless somebody registered one of Protobuf); asked for once.

        Raises UnknownSchemaId only if the registry itself says that there is none, and still does at the end of `Grace`, or while that rests.
        """
        schema = self._by_id.get(schema_id)
        if schema is None:
            schema = self._grace.found(schema_id, lambda: self._schema(schema_id))
            if schema is None:
                raise UnknownSchemaId(f"the {self._where} has no schema with id {schema_id}")
            self._by_id[schema_id] = schema
        return schema

    def by_id_of(self, subject: str, schema_id: int) -> str:
        """`by_id`, of the schemas of `subject` alone: one that only others have is an UnknownSchemaId, too."""
        schema, what = self.by_id(schema_id), (subject, schema_id)
        if what not in self._of_subject:
            if self._grace.found(what, lambda: self._has(subject, schema_id) or None) is None:
                raise UnknownSchemaId(
                    f"the {self._where} has the schema with id {schema_id} in no version of {subject}"
                )
            self._of_subject.add(what)
        return schema

    def is_compatible(self, subject: str, schema: str) -> list[str]:
        """What speaks against `schema` as the next version of `subject`, in the registry's words; empty if nothing.

        A subject without versions takes any schema. Apicurio says no more than that it is not compatible.
        """
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/latest?verbose=true"
        answer = self._ask("POST", path, {"schema": schema}, _read_problems)
        if isinstance(answer, _No):
            if answer.code in (_SUBJECT_NOT_FOUND, _VERSION_NOT_FOUND):
                return []
            raise self._refusal(f"compare a schema with {subject}", answer)
        return answer

    def set_compatibility(self, subject: str, mode: str) -> None:
        """Set the compatibility mode (`BACKWARD`, …) that new versions of `subject` are held to."""
        answer = self._ask("PUT", f"/config/{_quoted(subject)}", {"compatibility": mode}, _read_mode)
        if isinstance(answer, _No):
            raise self._refusal(f"set the compatibility of {subject} to {mode}", answer)

    def _schema(self, schema_id: int) -> str | None:
        answer = self._ask("GET", f"/schemas/ids/{schema_id}", None, _read_schema)
        if isinstance(answer, _No):
            if answer.code == _SCHEMA_NOT_FOUND:
                return None
            raise self._refusal(f"give the schema with id {schema_id}", answer)
        return answer

    def _has(self, subject: str, schema_id: int) -> bool:
        answer = self._ask("GET", f"/schemas/ids/{schema_id}/versions", None, _read_subjects)
        if isinstance(answer, _No):
            if answer.code == _SCHEMA_NOT_FOUND:  # so says a node that lags behind
                return False
            raise self._refusal(f"say which subjects have the schema with id {schema_id}", answer)
        return subject in answer

    def _version(self, subject: str, version: str) -> RegisteredSchema:
        answer = self._ask("GET", f"/subjects/{_quoted(subject)}/versions/{version}", None, _read_version)
        if isinstance(answer, _No):
            raise self._no_subject(subject, answer)
        self._by_id[answer.id] = answer.schema
        return answer

    def _ask(self, method: str, path: str, body: dict[str, str] | None, read: Callable[[Any], _T]) -> _T | _No:
        """The answer as `read` takes it from the JSON, or the registry's own no; retries everything else."""
        retrying = Retrying(
            retry=retry_if_exception_type(RegistryUnavailable),
            stop=stop_after_delay(self._retry_seconds),
            wait=wait_exponential_jitter(multiplier=0.1, max=5.0, jitter=0.1),
            before_sleep=lambda state: self._tell(state.outcome.exception() if state.outcome else None),
            reraise=True,
        )
        try:
            answer = retrying(self._ask_once, method, path, body, read)
        except RegistryUnavailable as error:
            self._tell(error)
            raise
        if self._away:
            self._away = False
            _log.info("registry answers again", registry=self._where)
        return answer

    def _tell(self, error: BaseException | None) -> None:
        if not self._away:
            self._away = True
            _log.warning("registry unavailable", registry=self._where, error=str(error))

    def _ask_once(self, method: str, path: str, body: dict[str, str] | None, read: Callable[[Any], _T]) -> _T | _No:
        what = f"{self._where}, {method} {path}"
        try:
            status, content = self._response(method, path, body)
        except httpx.RequestError as error:
            raise RegistryUnavailable(f"{what}: {type(error).__name__}: {error}") from error
        if status in (401, 403):
            return _No(status, status, "the credentials are missing, wrong or not enough")
        try:
            answer = json.loads(content)
            if 200 <= status < 300:
                return read(answer)
            # What stands between us and the registry has 4xx answers too, but not in this shape.
            if 400 <= status < 500 and status not in (408, 429):
                return _No(status, int(answer["error_code"]), str(answer["message"]))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise RegistryUnavailable(f"{what}: answered {status}, but not as a schema registry does") from error
        raise RegistryUnavailable(f"{what}: answered {status}")

    def _response(self, method: str, path: str, body: dict[str, str] | None) -> tuple[int, bytes]:
        """Status and body, bounded in time and size: httpx bounds the wait for each piece only."""
        until = time.monotonic() + 2 * self._timeout_seconds
        content = bytearray()
        with self._client.stream(method, path, json=body) as response:
            for piece in response.iter_bytes():
                content += piece
                if len(content) > _MOST_BYTES or time.monotonic() > until:
                    raise httpx.ReadTimeout(f"{len(content)} bytes came, and no end", request=response.request)
            return response.status_code, bytes(content)

    def _no_subject(self, subject: str, answer: _No) -> RegistryError:
        if answer.code in (_SUBJECT_NOT_FOUND, _VERSION_NOT_FOUND):
            return UnknownSubject(f"the {self._where} has no subject {subject}")
        return self._refusal(f"give the versions of {subject}", answer)

    def _refusal(self, what: str, answer: _No) -> RegistryRefused:
        return RegistryRefused(f"the {self._where} refused to {what}: {answer.status}: {answer.message}")


@dataclass(frozen=True, slots=True)
class _No:
    """An error answer in the protocol's own shape."""

    status: int
    code: int
    message: str


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


# How to read each answer. A missing key or a wrong type is an answer that does not make sense: an outage.


def _read_id(answer: Any) -> int:
    return int(answer["id"])


def _read_numbers(answer: Any) -> list[int]:
    return [int(number) for number in answer]


def _read_schema(answer: Any) -> str:
    # One of another kind than Avro (`schemaType`) is an answer too: whoever takes it for Avro finds out.
    schema = answer["schema"]
    if not isinstance(schema, str):
        raise TypeError("the schema is no text")
    return schema


def _read_version(answer: Any) -> RegisteredSchema:
    return RegisteredSchema(int(answer["id"]), str(answer["subject"]), int(answer["version"]), _read_schema(answer))


def _read_subjects(answer: Any) -> set[str]:
    return {str(version["subject"]) for version in answer}


def _read_problems(answer: Any) -> list[str]:
    if answer["is_compatible"]:
        return []
    return [str(message) for message in answer.get("messages") or ["the registry does not say why"]]


def _read_mode(answer: Any) -> str:
    return str(answer["compatibility"])
