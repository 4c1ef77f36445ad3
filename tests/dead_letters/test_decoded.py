"""What can't be decoded is told about and never raises."""

from __future__ import annotations

import json

import pytest
from pydantic import HttpUrl

from contracts.dead_letters.decoded import Decoded, Decoder
from contracts.records.codec import MAX_BYTES
from contracts.servers.registry import Registry
from contracts.settings import RegistrySettings
from tests import sample
from tests.contracts.gateway import a_gateway
from tests.dead_letters.letters import a_letter


def decoded(value: bytes, answer: dict[str, object], status: int = 200) -> Decoded:
    with (
        a_gateway(None, answers=[(status, json.dumps(answer))]) as gateway,
        Registry(RegistrySettings(url=HttpUrl(gateway.url)), retry_seconds=0.1) as registry,
    ):
        return Decoder(registry, sample.catalog()).decode(a_letter(value=value))


@pytest.mark.parametrize(
    "schema", ['syntax = "proto3"; message A {}', '{"type": "object", "properties": {}}', '"string"', "[" * 10_000]
)
def test_a_value_whose_schema_is_no_avro_record_has_a_problem(schema: str) -> None:
    found = decoded(b"\x00\x00\x00\x00\x01\x02a", {"schema": schema})
    assert found.fields is None
    assert "schema id 1 is not an Avro record" in str(found.problem)


@pytest.mark.parametrize("status", [404, 503])
def test_a_value_too_long_whose_schema_can_not_be_had_has_a_problem(status: int) -> None:
    value = b"\x00\x00\x00\x00\x01" + bytes(MAX_BYTES)
    assert "TooLong" in str(decoded(value, {"error_code": 40403, "message": "no schema"}, status).problem)
