"""How large records may be, and what topics and clients are set to for it: each limit follows from the ones before.

A publisher counts key, value and headers as they are, before any compression. A reader refuses a record for its key and value alone:
what comes of it carries three of its headers at most, of `PASSED_ON_BYTES` each, and counting headers takes longer than all else. Brokers count batches,
compressed. Spark's Python workers import this file, so it imports nothing of weight.
"""

from __future__ import annotations

from collections.abc import Sequence

from contracts.errors import TooLong
from contracts.records.dead_letter_headers import REDRIVEN_FROM
from contracts.records.headers import header_of

RAW_BYTES = 900_000
"""The largest record of a topic that derives from none. With all that is added it stays under what brokers take by default."""

ADDED_BYTES = 65_536
"""What a stage adds to a record at most: looked-up fields, headers."""

DERIVED_BYTES = RAW_BYTES + ADDED_BYTES
"""The largest record of a derived topic."""

KEPT_BYTES = 1 << 20
"""A dead letter holds a record up to this size as it was, and of a larger one only its stump. As much as a client sends by default."""

DEAD_LETTER_BYTES = KEPT_BYTES * 37 // 20 + ADDED_BYTES
"""The largest dead letter. Renaming makes headers longer: at worst each is a ce_causationid without value, 20 bytes here, 37 there."""

DIMENSION_TEXT_BYTES = 1_000
"""The longest text in a dimension: those that one record is given by all its lookups fit into `ADDED_BYTES`."""

COMPUTED_TEXT_BYTES = 16_384
"""What a pipeline may compute in texts for one record: a quarter of `ADDED_BYTES`."""

ALERT_TEXT_BYTES = RAW_BYTES - ADDED_BYTES
"""What a record may give an alert in texts: the rest of the alert fits into `ADDED_BYTES`."""

PASSED_ON_BYTES = 1_000
"""A longer header is not passed on to what is made of a record. W3C's traceparent has 55."""

HEADER_BYTES = 6
"""What the lengths of a header's name and value take at most."""

REDRIVEN_FROM_BYTES = 400
"""What the header that a redrive adds takes at most: a topic's name has up to 249."""

_BROKERS_DEFAULT = 1_048_588
"""`max.message.bytes`, and by it what clients take for a batch by default: 1,000,000 bytes (librdkafka), 1,048,576 (Java)."""


def record_size(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, str | bytes | None]]) -> int:
    """In bytes. The header that a redrive adds doesn't count: a record that goes back is as large as it was.

    `spark.records.record_size` has the same as an expression.
    """
    size = len(key or b"") + len(value or b"")
    for name, content in headers:
        size += HEADER_BYTES + _length(name) + (_length(content) if content else 0)
    note = header_of(headers, REDRIVEN_FROM)
    return size if note is None else size - min(REDRIVEN_FROM_BYTES, HEADER_BYTES + len(REDRIVEN_FROM) + len(note))


def fits(key: bytes | None, value: bytes | None, most_bytes: int) -> bool:
    """Whether a record that was read is no larger than its topic's may be."""
    return len(key or b"") + len(value or b"") <= most_bytes


def check_size(key: bytes | None, value: bytes | None, most_bytes: int) -> None:
    """Raise TooLong if a record that was read is larger than its topic's may be."""
    if not fits(key, value, most_bytes):
        size = len(key or b"") + len(value or b"")
        raise TooLong(f"key and value have {size} bytes, and those of its topic at most {most_bytes}")


def batch_limit(record_bytes: int) -> int:
    """`max.message.bytes` of a topic with records up to this size.

    What a batch adds to its one record (under 100 bytes), and compression to what can't be compressed (under 1 %), fits in. Batches of
    several are no larger than `batch.size` says: at most 1,000,000 bytes at any client of ours, and none of a stranger with its client's defaults is refused.
    """
    return max(_BROKERS_DEFAULT, record_bytes + record_bytes // 32)


LARGEST_BATCH_BYTES = batch_limit(DEAD_LETTER_BYTES)
"""What each producer of ours may send: so it is the topic's own limit that counts."""


def _length(text: str | bytes) -> int:
    return len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode())
