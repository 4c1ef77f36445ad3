"""What a load's records are after the change of their schema."""

from __future__ import annotations

from contracts.definitions.catalog import load_catalog
from contracts.records.codec import Codec
from tests.bench.load.changes import renewed, renewed_schema
from tests.bench.load.records import RAW, raw_values

_OLD, _NEW = 7, 8


def test_a_renewed_record_has_the_new_field_as_null_and_the_others_as_before() -> None:
    codec = Codec({_OLD: load_catalog().schema(RAW), _NEW: renewed_schema()}.__getitem__)
    _, value, _ = next(raw_values(_OLD))
    assert codec.decode(renewed(value, _NEW)) == {**codec.decode(value), "noted": None}
