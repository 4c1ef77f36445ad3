"""Dispatches around the largest record that a raw topic has, as a producer of somebody else's may send them."""

from __future__ import annotations

import secrets

from contracts.records.limits import RAW_BYTES
from tests.raw_records import RawRecord
from tests.spark.examples import a_dispatch, body, framed

_HEADERS = ((b"ce_id", None),) * 90_000 + tuple(
    (name, b"x" * 3_000_000) for name in (b"ce_id", b"ce_time", b"traceparent")
)


def large_records(schema_id: int) -> list[tuple[RawRecord, str | None]]:
    """Each with the compression of its batch: as large as may be, one byte larger, 20 MB, 90,000 headers of which three are large, and as many without a body."""

    def dispatch(parcel_id: str) -> bytes:
        return framed(schema_id, body(a_dispatch(parcel_id=parcel_id)))

    # The length of a longer text takes two bytes more.
    room = RAW_BYTES - len(b"key" + dispatch("")) - 2
    hard = "fits" + secrets.token_hex(RAW_BYTES)
    return [
        (RawRecord(b"key", dispatch(hard[:room])), None),
        (RawRecord(b"key", dispatch(hard[: room + 1])), "lz4"),
        (RawRecord(b"key", dispatch("x" * 20_000_000)), "lz4"),
        (RawRecord(b"key", dispatch("headers"), _HEADERS), "lz4"),
        (RawRecord(b"key", None, ((b"ce_id", None),) * 90_000), None),
    ]
