"""A dead letter's headers: the record's own and Kafka Connect's names for what went wrong, and the way back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Header: TypeAlias = tuple[str, str | bytes | None]

ERRORS = "__connect.errors."
"""What the names of Kafka Connect's headers begin with
(org.apache.kafka.connect.runtime.errors.DeadLetterQueueReporter).
"""

CAUSE = f"{ERRORS}ce_causationid"
"""Where the record's own ce_causationid stands, since that name is taken by its ce_id."""

TIMESTAMP = f"{ERRORS}timestamp"
"""The record's timestamp in milliseconds since the epoch, on dead letters that could not keep it as their own: Spark's Kafka
writer sets none.
"""

REDRIVEN_FROM = "ce_redrivenfrom"
"""On a record that was sent back: the coordinate of the dead letter. CloudEvents wants names of letters and digits."""

STUMP_BYTES = f"{ERRORS}record.bytes"
STUMP_SHA256 = f"{ERRORS}value.sha256"
"""On a stump, in place of key, value and headers: the record's size (`contracts.records.limits.record_size`), and its value's SHA-256,
hexadecimal, unless it had none.
"""

TEXT_CHARACTERS = 1_000
"""So much of a reason or an error is kept: it may quote the record."""

_RENAMED = {"ce_id": "ce_causationid", "ce_causationid": CAUSE}
_RESTORED = {new: old for old, new in _RENAMED.items()}


def dead_letter_headers(
    original: Iterable[Header],
    topic: str,
    service: str,
    stage: str,
    reason: str,
    error: str,
    coordinate: str | None,
) -> list[Header]:
    """The original headers, the record's own ce_id as ce_causationid, then the coordinate as ce_id and Kafka Connect's
    names for what went wrong. See `Publisher.dead_letter`; `spark.records.dead_letters` makes the same as expressions.
    """
    errors = {"topic": topic, "connector.name": service, "stage": stage}
    errors |= {"exception.class.name": reason[:TEXT_CHARACTERS], "exception.message": error[:TEXT_CHARACTERS]}
    headers: list[Header] = [(_RENAMED.get(name, name), value) for name, value in original]
    if coordinate is not None:
        # Headers are texts: nothing is gained by numbers, and Spark's sink does this for each dead letter.
        errors["topic"], errors["partition"], errors["offset"] = coordinate.rsplit("/", 2)
        headers.append(("ce_id", coordinate.encode()))
    # Bytes: the client cuts a text at its first NUL.
    headers += [(f"{ERRORS}{name}", text.encode(errors="replace")) for name, text in errors.items()]
    return headers


def stump_headers(size: int, value_sha256: str | None) -> list[Header]:
    """What a stump has behind the headers that `dead_letter_headers` adds."""
    digest: list[Header] = [] if value_sha256 is None else [(STUMP_SHA256, value_sha256)]
    return [(STUMP_BYTES, str(size)), *digest]


def original_headers(headers: Sequence[tuple[str, bytes | None]], coordinate: str) -> list[tuple[str, bytes | None]]:
    """The headers that the record at `coordinate` had before `dead_letter_headers`, in their order.

    What a stranger, such as Kafka Connect itself, added to a dead letter is known by its name only.
    """
    ours = ("ce_id", coordinate.encode())
    if ours not in headers:
        return [(name, value) for name, value in headers if not name.startswith(ERRORS)]
    # The last one: the record may have had anything.
    added = len(headers) - 1 - list(reversed(headers)).index(ours)
    return [(_RESTORED.get(name, name), value) for name, value in headers[:added]]
