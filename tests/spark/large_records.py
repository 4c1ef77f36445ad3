"""Departures around the largest record that a raw topic has, as a producer of somebody else's may send them."""

from __future__ import annotations

import secrets

from contracts.records.limits import RAW_BYTES
from tests.raw_records import RawRecord
from tests.spark.examples import a_departure, body, framed

_HEADERS = ((b"ce_id", None),) * 90_000 + tuple(
    (name, b"x" * 3_000_000) for name in (b"ce_id", b"ce_time", b"traceparent")
)


def large_records(schema_id: int) -> list[tuple[RawRecord, str | None]]:
    """Each with the compression of its batch: as large as may be, one byte larger, 20 MB, 90,000 headers of which three are large, and as many without a body."""

    def departure(flight_id: str) -> bytes:
        return framed(schema_id, body(a_departure(flight_id=flight_id)))

    # The length of a longer text takes two bytes more.
    room = RAW_BYTES - len(b"key" + departure("")) - 2
    hard = "fits" + secrets.token_hex(RAW_BYTES)
    return [
        (RawRecord(b"key", departure(hard[:room])), None),
        (RawRecord(b"key", departure(hard[: room + 1])), "lz4"),
        (RawRecord(b"key", departure("x" * 20_000_000)), "lz4"),
        (RawRecord(b"key", departure("headers"), _HEADERS), "lz4"),
        (RawRecord(b"key", None, ((b"ce_id", None),) * 90_000), None),
    ]
