"""`mutations`: a file as a slip, a broken disk or a hostile hand may leave it, by chance that a seed decides."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

_TOKENS = [
    *(b"[", b"]", b"{", b"}", b":", b": ", b"- ", b"\n", b"\t", b'"', b"'", b"|", b">", b"%", b"@", b"`", b"#", b",", b"~", b"?"),
    *(b"&a ", b"*a", b"<<: ", b"!!python/object:os.system ", b"!!int ", b"!!binary ", b"--- ", b"...", b"{{x}}", b"\0", b"\xff"),
    *(b"\xef\xbb\xbf", "\N{SKULL}".encode(), b"\x1b[2J", b"null", b"NA", b"nan", b".inf", b"-1", b"0", b"1e999", b"2013-02-30"),
    *(b"1:1:1", b"0x" + b"f" * 40, b"9" * 400, b"${HOME}", b"{x:c}", b"{station.__class__}", b"../", b"/"),
]  # fmt: skip
_MOST_AT_ONCE = 4


def mutations(whole: bytes, chance_seed: int) -> Iterator[bytes]:
    """Without end; most are damaged in a few places."""
    chance = random.Random(chance_seed)
    while True:
        found = whole
        for _ in range(chance.randint(1, _MOST_AT_ONCE)):
            found = chance.choice(_DAMAGE)(found, chance)
        yield found


def _piece(data: bytes, chance: random.Random) -> tuple[int, int]:
    start = chance.randrange(len(data) + 1)
    return start, min(len(data), start + chance.randrange(1, 60))


def _flip(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.randbytes(1) + data[at + 1 :]


def _insert(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(_TOKENS) * chance.choice([1, 1, 1, 2, 50, 5_000]) + data[at:]


def _remove(data: bytes, chance: random.Random) -> bytes:
    start, end = _piece(data, chance)
    return data[:start] + data[end:]


def _repeat(data: bytes, chance: random.Random) -> bytes:
    start, end = _piece(data, chance)
    return data[:end] + data[start:end] * chance.choice([1, 2, 300]) + data[end:]


def _swap_lines(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines)


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _value(data: bytes, chance: random.Random) -> bytes:
    """Something else in place of what stands behind a colon."""
    lines = data.splitlines(keepends=True)
    at = [number for number, line in enumerate(lines) if b": " in line]
    if at:
        number = chance.choice(at)
        lines[number] = lines[number].partition(b": ")[0] + b": " + chance.choice(_TOKENS) + b"\n"
    return b"".join(lines)


_DAMAGE: list[Callable[[bytes, random.Random], bytes]] = [
    *(_flip, _insert, _remove, _repeat, _swap_lines, _cut),
    *[_value] * 6,
]
