"""The Confluent wire format: in front of an Avro body the byte 0x00 and its schema's id, 4 bytes, most significant first.

docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/#wire-format
"""

from __future__ import annotations

MAGIC = b"\x00"
FRAME_BYTES = 5
"""Of the byte and the id."""


def frame(schema_id: int) -> bytes:
    """What stands in front of a body of this schema."""
    return MAGIC + schema_id.to_bytes(FRAME_BYTES - 1, "big")


def schema_id_of(value: bytes) -> int | None:
    """The id in front of a body; None if there is no whole frame."""
    if value[:1] != MAGIC or len(value) < FRAME_BYTES:
        return None
    return int.from_bytes(value[1:FRAME_BYTES], "big")
