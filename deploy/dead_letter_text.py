"""Dead letters as text and as JSON. What they hold is anybody's bytes: nothing of it reaches a terminal unescaped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from contracts.dead_letters.decoded import Decoded
from contracts.dead_letters.letter import DeadLetter
from contracts.dead_letters.purge import PurgePlan
from contracts.dead_letters.summary import Count, State

_LINE_CHARACTERS = 400
_HEX_BYTES = 32
_COUNT_HEADS = ("topic", "reason", "letters", "open", "failed again", "redriven", "oldest record", "newest record")


def printable(text: str) -> str:
    """`text` with every character escaped that a terminal might obey: controls, and those that reorder a line."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def readable(data: bytes | None) -> str:
    """Bytes as text where they are UTF-8, else as hexadecimal digits."""
    if data is None:
        return "(none)"
    try:
        return printable(data.decode())
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def count_lines(counts: Sequence[Count]) -> Iterator[str]:
    """A table, one line for each topic and reason."""
    return aligned([_COUNT_HEADS, *(_cells(count) for count in counts)])


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows of as many cells each, as lines with the cells below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def letter_lines(letter: DeadLetter, state: State, decoded: Decoded) -> Iterator[str]:
    """Two or three lines about one letter, cut to a bearable length."""
    origin = "never was a record" if letter.origin is None else f"record {letter.origin}"
    failed = f" (sent back before, from {letter.redriven_from})" if letter.redriven_from is not None else ""
    yield cut(f"{letter.coordinate}  {instant(letter.timestamp)}  {state}{failed}  by {letter.by}, {origin}")
    yield cut(f"    {letter.reason}: {letter.error}")
    content = decoded_text(decoded) or hex_text(letter.value)
    yield cut(f"    {content if letter.stump_bytes is None else stump_text(letter)}")


def page_lines(letter: DeadLetter, state: State, decoded: Decoded) -> Iterator[str]:
    """Everything about one letter."""
    origin = "none: it never was a record" if letter.origin is None else str(letter.origin)
    yield from map(
        printable,
        (
            f"dead letter  {letter.coordinate}",
            f"state        {state}",
            f"record       {origin}",
            f"sent back    {letter.redriven_from or 'never before'}",
            f"time         {instant(letter.timestamp)}",
            f"by           {letter.by}",
            f"reason       {letter.reason}",
            f"error        {letter.error}",
            f"key          {readable(letter.key)}",
            f"decoded      {decoded_text(decoded) or '(nothing)'}",
            f"problem      {decoded.problem or '(none now)'}",
        ),
    )
    yield "headers"
    for name, value in letter.headers:
        yield f"  {printable(name)} = {readable(value)}"
    yield f"value        {'(none)' if letter.value is None else f'{len(letter.value)} bytes'}"
    if letter.stump_bytes is not None:
        yield f"stump        {stump_text(letter)}"
    for at in range(0, len(letter.value or b""), 32):
        yield f"  {at:08x}  {(letter.value or b'')[at : at + 32].hex(' ', -4)}"


def purge_lines(plan: PurgePlan, topic: str) -> Iterator[str]:
    """What a purge would delete, and what stays and why."""
    for partition, found in sorted(plan.partitions.items()):
        yield f"{topic}/{partition}: {found.letters} dead letters go"
        if found.behind:
            yield (
                f"{topic}/{partition}: {found.behind} that were meant too stay: Kafka deletes from the beginning only, and "
                f"before them lies {found.kept}, which was not meant"
            )
        elif found.kept is not None:
            yield f"{topic}/{partition}: the rest, from {found.kept} on, stays"


def letter_json(letter: DeadLetter, state: State, decoded: Decoded) -> dict[str, Any]:
    """Everything about one letter; bytes as hexadecimal digits, headers as text too."""
    return {
        "dead_letter": letter.coordinate,
        "record": None if letter.origin is None else str(letter.origin),
        "state": state,
        "sent_back_from": letter.redriven_from,
        "at": _json_instant(letter.timestamp),
        "by": letter.by,
        "reason": letter.reason,
        "error": letter.error,
        "key_hex": None if letter.key is None else letter.key.hex(),
        "value_hex": None if letter.value is None else letter.value.hex(),
        "stump_bytes": letter.stump_bytes,
        "value_sha256": letter.value_sha256,
        "headers": [
            {"name": name, "text": readable(value), "hex": None if value is None else value.hex()}
            for name, value in letter.headers
        ],
        "decoded": {"fields": decoded.fields, "text": decoded.text, "problem": decoded.problem},
    }


def count_json(count: Count) -> dict[str, Any]:
    """One line of the table."""
    return {
        "topic": count.topic,
        "reason": count.reason,
        "letters": count.letters,
        **{
            state.replace(" ", "_"): count.states.get(state, 0)
            for state in ("open", "failed again", "redriven", "purged")
        },
        "oldest": _json_instant(count.oldest),
        "newest": _json_instant(count.newest),
    }


def decoded_text(decoded: Decoded) -> str | None:
    """What could be read, on one line; None if nothing could."""
    if decoded.fields is not None:
        return printable(json.dumps(decoded.fields, default=str, ensure_ascii=False))
    return None if decoded.text is None else printable(decoded.text)


def stump_text(letter: DeadLetter) -> str:
    """What there is of a record that was too large for a dead letter."""
    size, digest = letter.stump_bytes, letter.value_sha256 or "(no value)"
    return printable(f"too large to keep: {size} bytes, which only {letter.origin} has; SHA-256 of the value {digest}")


def hex_text(value: bytes | None) -> str:
    """The beginning of a value as hexadecimal digits."""
    if value is None:
        return "(no value)"
    return f"{len(value)} bytes: {value[:_HEX_BYTES].hex(' ', -4)}{' …' if len(value) > _HEX_BYTES else ''}"


def _cells(count: Count) -> tuple[str, ...]:
    states = [str(count.states.get(state, 0)) for state in ("open", "failed again", "redriven")]
    texts = (count.topic, cut(count.reason, 60), str(count.letters), *states)
    return (*texts, instant(count.oldest), instant(count.newest))


def instant(at: datetime | None) -> str:
    """A moment as people read it, in UTC."""
    return "(no time)" if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json_instant(at: datetime | None) -> str | None:
    return None if at is None else instant(at)


def cut(text: str, characters: int = _LINE_CHARACTERS) -> str:
    """`printable`, and no longer than that."""
    safe = printable(text)
    return safe if len(safe) <= characters else f"{safe[: characters - 2]} …"
