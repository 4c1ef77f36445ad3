"""`header_of`: what a record's headers say, where a name may stand more than once."""

from __future__ import annotations

from collections.abc import Sequence

_Value = str | bytes | None


def header_of(headers: Sequence[tuple[str, _Value]] | dict[str, _Value] | None, name: str) -> bytes | None:
    """The value of the last header with this name; None if there is none, or it has no value.

    The last, as Kafka's own `Headers.lastHeader`: whoever passes a record on adds at the end. `headers` as confluent-kafka has them.
    """
    for found, value in reversed(list(headers.items()) if isinstance(headers, dict) else headers or ()):
        if found == name:
            return value.encode() if isinstance(value, str) else value
    return None
