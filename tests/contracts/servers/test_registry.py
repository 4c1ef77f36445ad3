"""The registry is believed when it speaks as a registry does, and only then."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import HttpUrl, SecretStr

from contracts.errors import (
    RegistryError,
    RegistryRefused,
    RegistryUnavailable,
    SchemaIncompatible,
    UnknownSchemaId,
    UnknownSubject,
)
from contracts.servers.registry import Registry
from contracts.settings import RegistrySettings
from deploy.local.servers.stack import LocalStack
from tests.contracts.gateway import HANG_UP, a_gateway
from tests.contracts.wire import register_protobuf

UNKNOWN_ID = json.dumps({"error_code": 40403, "message": "Schema not found"})


def a_registry(url: str, *, retry_seconds: float = 30, **settings: Any) -> Registry:
    return Registry(RegistrySettings(url=HttpUrl(url), **settings), retry_seconds=retry_seconds)


def a_subject() -> str:
    return f"trials.{uuid.uuid4().hex}.v1-value"


def a_schema(**fields: Any) -> str:
    listed = [{"name": name, **(each if isinstance(each, dict) else {"type": each})} for name, each in fields.items()]
    return json.dumps({"type": "record", "name": "R", "fields": listed})


@pytest.mark.system
def test_a_registered_schema_is_found_by_id_as_latest_and_among_the_versions(stack: LocalStack) -> None:
    subject, first = a_subject(), a_schema(a="string")
    second = a_schema(a="string", b={"type": "int", "default": 0})
    with a_registry(stack.registry.url) as registry:
        ids = [registry.register(subject, schema) for schema in (first, second)]
    with a_registry(stack.registry.url) as registry:
        assert [json.loads(registry.by_id(each)) for each in ids] == [json.loads(first), json.loads(second)]
        versions = registry.versions(subject)
        assert [(version.id, version.version) for version in versions] == [(ids[0], 1), (ids[1], 2)]
        assert registry.latest(subject) == versions[1]


@pytest.mark.system
def test_registering_again_gives_the_same_id_and_no_new_version(stack: LocalStack) -> None:
    subject = a_subject()
    with a_registry(stack.registry.url) as registry:
        assert registry.register(subject, a_schema(a="string")) == registry.register(subject, a_schema(a="string"))
        assert len(registry.versions(subject)) == 1


@pytest.mark.system
def test_an_incompatible_schema_is_refused_with_field_and_both_versions(stack: LocalStack) -> None:
    subject = a_subject()
    with a_registry(stack.registry.url) as registry:
        registry.register(subject, a_schema(a="string"))
        registry.set_compatibility(subject, "BACKWARD")
        assert registry.is_compatible(subject, a_schema(a="string", b="int"))
        with pytest.raises(SchemaIncompatible, match=r"version 2 may not follow version 1: .*\bb at /fields/1"):
            registry.register(subject, a_schema(a="string", b="int"))
        registry.set_compatibility(subject, "NONE")
        registry.register(subject, a_schema(a="string", b="int"))


@pytest.mark.system
def test_a_subject_without_versions_takes_any_schema(stack: LocalStack) -> None:
    with a_registry(stack.registry.url) as registry:
        assert registry.is_compatible(a_subject(), a_schema(a="string")) == []


@pytest.mark.system
def test_what_the_registry_does_not_know_is_said_by_name(stack: LocalStack) -> None:
    with a_registry(stack.registry.url) as registry:
        with pytest.raises(UnknownSchemaId):
            registry.by_id(4_000_000_000)
        with pytest.raises(UnknownSubject):
            registry.latest(a_subject())
        with pytest.raises(UnknownSubject):
            registry.versions(a_subject())


@pytest.mark.system
def test_a_schema_that_is_none_is_refused(stack: LocalStack) -> None:
    with a_registry(stack.registry.url) as registry, pytest.raises(RegistryRefused):
        registry.register(a_subject(), '{"type": "wat"}')


@pytest.mark.system
def test_an_id_is_asked_for_once(stack: LocalStack) -> None:
    with a_registry(stack.registry.url) as registry:
        schema_id = registry.register(a_subject(), a_schema(a="string"))
    with a_gateway(stack.registry.url) as gateway, a_registry(gateway.url) as registry:
        assert registry.by_id(schema_id) == registry.by_id(schema_id)
        assert len(gateway.seen) == 1


@pytest.mark.system
def test_an_outage_that_ends_is_ridden_out(stack: LocalStack) -> None:
    with a_registry(stack.registry.url) as registry:
        schema_id = registry.register(a_subject(), a_schema(a="string"))
    outage = [(503, "busy"), (HANG_UP, ""), (404, "<html>nothing here</html>"), (302, ""), (200, "welcome to the WiFi")]
    with a_gateway(stack.registry.url, answers=outage) as gateway, a_registry(gateway.url) as registry:
        assert json.loads(registry.by_id(schema_id)) == json.loads(a_schema(a="string"))
        assert len(gateway.seen) == len(outage) + 1


@pytest.mark.parametrize(
    "answer",
    [
        (500, '{"error_code": 50001, "message": "the backend store is away"}'),
        (503, "busy"),
        (429, UNKNOWN_ID),
        (404, "<html>no such page</html>"),
        (404, "{}"),
        (404, '"not found"'),
        (302, ""),
        (200, "welcome to the WiFi"),
        (200, "{}"),
        (200, '{"schema": {}}'),
        (HANG_UP, ""),
    ],
)
def test_an_answer_that_makes_no_sense_is_an_outage_and_never_unknown(answer: tuple[int, str]) -> None:
    with a_gateway(None, answers=[answer]) as gateway, a_registry(gateway.url, retry_seconds=1.0) as registry:
        with pytest.raises(RegistryUnavailable):
            registry.by_id(1)
        assert len(gateway.seen) > 1


@pytest.mark.system
def test_a_schema_of_protobuf_is_given_as_it_is(stack: LocalStack) -> None:
    with a_registry(stack.registry.url) as registry:
        assert registry.by_id(register_protobuf(stack.registry.url, a_subject())).startswith('syntax = "proto3";')


def test_an_answer_that_trickles_for_ever_is_an_outage() -> None:
    def trickle(listening: socket.socket) -> None:
        asking, _ = listening.accept()
        with asking, suppress(OSError):
            asking.recv(65_536)
            asking.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n")
            while True:
                asking.sendall(b" ")
                time.sleep(0.1)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=trickle, args=[listening], daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with (
            Registry(RegistrySettings.model_validate({"url": url}), retry_seconds=0, timeout_seconds=1) as registry,
            pytest.raises(RegistryUnavailable, match="bytes came, and no end"),
        ):
            registry.latest("any")


def test_a_closed_port_is_an_outage() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    with a_registry(url, retry_seconds=0.3) as registry, pytest.raises(RegistryUnavailable, match="ConnectError"):
        registry.latest("anything")


def test_unknown_takes_the_registrys_own_error_code() -> None:
    with a_gateway(None, answers=[(404, UNKNOWN_ID)]) as gateway, a_registry(gateway.url, lag_seconds=0) as registry:
        with pytest.raises(UnknownSchemaId):
            registry.by_id(1)
        assert len(gateway.seen) == 1


@pytest.mark.system
def test_an_id_that_a_node_does_not_have_yet_is_no_unknown_one(stack: LocalStack) -> None:
    subject = a_subject()
    with a_registry(stack.registry.url) as registry, a_gateway(stack.registry.url) as gateway:
        schema_id = registry.register(subject, a_schema(a="string"))
        gateway.lag(3)
        with a_registry(gateway.url) as theirs:
            assert json.loads(theirs.by_id(schema_id)) == json.loads(a_schema(a="string"))
            assert len(gateway.seen) == 4


@pytest.mark.system
def test_a_schema_is_known_to_the_subjects_that_have_it(stack: LocalStack) -> None:
    mine, yours, schema = a_subject(), a_subject(), a_schema(**{f"f{uuid.uuid4().hex}": "string"})
    with a_registry(stack.registry.url, lag_seconds=1.0) as registry, a_gateway(stack.registry.url) as gateway:
        schema_id = registry.register(mine, schema)
        with a_registry(gateway.url, lag_seconds=1.0) as reader:
            assert json.loads(reader.by_id_of(mine, schema_id)) == json.loads(schema)
            assert reader.by_id_of(mine, schema_id) and len(gateway.seen) == 2, "schema and subjects are asked for once"
            with pytest.raises(UnknownSchemaId, match=f"in no version of {yours}"):
                reader.by_id_of(yours, schema_id)
        assert registry.register(yours, schema) == schema_id
        gateway.lag(3)
        with a_registry(gateway.url) as reader:
            assert json.loads(reader.by_id_of(yours, schema_id)) == json.loads(schema)


@pytest.mark.system
def test_versions_are_those_that_the_node_has_which_is_asked_for_them(stack: LocalStack) -> None:
    subject = a_subject()
    with (
        a_registry(stack.registry.url) as registry,
        a_gateway(stack.registry.url, answers=[(200, "[1, 2]")]) as gateway,
        a_registry(gateway.url) as theirs,
    ):
        registry.register(subject, a_schema(a="string"))
        assert [version.version for version in theirs.versions(subject)] == [1]


def test_a_flood_of_unknown_ids_is_waited_for_once() -> None:
    with a_gateway(None, answers=[(404, UNKNOWN_ID)]) as gateway, a_registry(gateway.url) as registry:
        with pytest.raises(UnknownSchemaId):
            registry.by_id(1)
        asked = len(gateway.seen)
        assert asked > 2
        with pytest.raises(UnknownSchemaId):
            registry.by_id(1)
        assert len(gateway.seen) == asked, "it was asked for again"
        for _ in range(20):
            for schema_id in range(2, 102):
                with pytest.raises(UnknownSchemaId):
                    registry.by_id(schema_id)
        # On a slow machine the flood may outlast a rest, and an id is asked for again while it lasts.
        assert len(gateway.seen) < 300 + 10 * asked


def test_wrong_credentials_are_not_tried_again() -> None:
    with a_gateway(None, answers=[(401, "")]) as gateway, a_registry(gateway.url) as registry:
        with pytest.raises(RegistryRefused, match="credentials"):
            registry.by_id(1)
        assert len(gateway.seen) == 1


@pytest.mark.parametrize(
    ("settings", "header"),
    [
        ({}, None),
        ({"username": "me", "password": SecretStr("pa:ss")}, "Basic " + base64.b64encode(b"me:pa:ss").decode()),
        ({"token": SecretStr("t0ken")}, "Bearer t0ken"),
    ],
)
def test_credentials_are_sent_and_never_shown(settings: dict[str, Any], header: str | None) -> None:
    with a_gateway(None, answers=[(503, "")]) as gateway:
        with a_registry(gateway.url, retry_seconds=0, **settings) as registry, pytest.raises(RegistryError) as raised:
            registry.by_id(1)
        assert gateway.seen[0].get("authorization") == header
        assert not any(secret in str(raised.value) for secret in ("pa:ss", "t0ken"))


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with (
        a_gateway(None, answers=[(404, UNKNOWN_ID)]) as gateway,
        a_registry(gateway.url) as registry,
        pytest.raises(UnknownSchemaId),
    ):
        registry.by_id(1)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_private_certificate_authority_is_trusted_by_its_file_alone(tmp_path: Path) -> None:
    certificate, key = tmp_path / "ca.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *files], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with a_gateway(None, answers=[(404, UNKNOWN_ID)], tls=tls) as gateway:
        with a_registry(gateway.url, ca_file=certificate) as registry, pytest.raises(UnknownSchemaId):
            registry.by_id(1)
        with a_registry(gateway.url, retry_seconds=0) as registry, pytest.raises(RegistryUnavailable):
            registry.by_id(1)
