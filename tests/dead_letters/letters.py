"""Dead letters as values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from contracts.dead_letters.letter import DeadLetter
from contracts.records.dead_letter_headers import REDRIVEN_FROM, Header, dead_letter_headers, stump_headers


def a_letter(
    *,
    original: Sequence[tuple[str, bytes | None]] = (("ce_id", b"theirs"),),
    coordinate: str | None = "parcels.dispatched.v1/1/42",
    reason: str = "UnknownSchemaId",
    error: str = "no such id",
    redriven_from: str | None = None,
    **fields: Any,
) -> DeadLetter:
    """What `live` could not decode; `fields` are those of DeadLetter."""
    own = [*original, *([(REDRIVEN_FROM, redriven_from.encode())] if redriven_from else [])]
    headers = dead_letter_headers(
        own, "parcels.dispatched.v1", "dispatches_enriched", "VALUE_CONVERTER", reason, error, coordinate
    )
    usual = DeadLetter("parcels.dispatched.v1.dlq", 0, 7, 1_700_000_000_000, b"key", b"value", stored(headers))
    return dataclasses.replace(usual, **fields)


def a_stump() -> DeadLetter:
    """What is left of a record of 20 MB."""
    letter = a_letter(original=(), reason="TooLong")
    headers = letter.headers + stored(stump_headers(20_000_000, "5" * 64))
    return dataclasses.replace(letter, key=None, value=None, headers=headers)


def stored(headers: Iterable[Header]) -> tuple[tuple[str, bytes | None], ...]:
    """Headers as a consumer gets them."""
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in headers)
