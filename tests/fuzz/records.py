"""`odd_records`: records as any client may send them, by chance that a seed decides.

Hypothesis draws the parts, bodies by the topic's schemas and headers; chance puts them together and damages some.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from contracts.records.dead_letter_headers import ERRORS, REDRIVEN_FROM
from tests.contracts.records.avro_values import a_number
from tests.fuzz.bodies import bodies
from tests.raw_records import NO_TEXT, RawRecord

_T = TypeVar("_T")
DIFFERENT = 1_500
_DAMAGED = 0.12
_LARGE = 0.0002
_NOBODYS_IDS = (0, 2**31 - 1, 2**32 - 1, 2_000_000_000)

_OUR_NAMES = [
    *(
        b"ce_id",
        b"ce_time",
        b"ce_source",
        b"ce_type",
        b"ce_causationid",
        b"ce_revision",
        b"traceparent",
        b"content-type",
    ),
    *(name.encode() for name in (REDRIVEN_FROM, f"{ERRORS}connector.name", f"{ERRORS}offset", f"{ERRORS}timestamp")),
]
_NAMES = st.one_of(
    st.sampled_from(_OUR_NAMES), st.sampled_from([b"", NO_TEXT, b"\xff\xfe", b"x" * 300]), st.binary(max_size=8)
)
_Headers = list[tuple[bytes, bytes | None]]


def ids(raw: str, derived: str, other: str) -> tuple[bytes, ...]:
    """Event ids that look like coordinates of these topics; some are."""
    texts = (
        "2024/11/23",
        "a/0/99999999999999999999",
        f"{raw}/0/5",
        f"{raw}/1/-3",
        f"{derived}/0/1",
        f"{other}/9999999999/0",
        "//",
        f"{raw}/0/1e3",
    )
    return tuple(text.encode() for text in texts)


def _header_lists(claimed: Sequence[bytes], pipeline: bytes) -> st.SearchStrategy[_Headers]:
    values = (
        st.none()
        | st.sampled_from(claimed)
        | st.binary(max_size=30)
        | st.sampled_from([pipeline, b"lake", b"alerting", b"-1"])
    )
    return st.lists(st.tuples(_NAMES, values), max_size=4)


_KEYS: tuple[Callable[[random.Random], bytes | None], ...] = (
    lambda chance: b"key%d" % chance.randrange(1000),
    lambda chance: chance.randbytes(chance.randrange(12)),
    lambda chance: None,
    lambda chance: b"",
    lambda chance: b"k" * chance.choice([249, 1_024, 4_000]),
)


def odd_records(
    schemas: Mapping[int, str],
    foreign_ids: Sequence[int],
    largest_bytes: int,
    chance_seed: int,
    claims: tuple[Sequence[bytes], bytes],
    different: int = DIFFERENT,
) -> Iterator[RawRecord]:
    """Records for a topic whose subject has these schemas, by id; without end.

    `foreign_ids` are of other subjects; `largest_bytes` is how large a batch the topic takes; `claims`: event ids, and the
    pipeline that some say has set them aside. `different`: of so many bodies of each schema,
    and lists of headers, which take most of the time to make.
    """
    chance = random.Random(chance_seed)
    known = {schema_id: drawn(bodies(schema), chance_seed, different) for schema_id, schema in schemas.items()}
    headers = drawn(_header_lists(*claims), chance_seed, different)
    while True:
        schema_id = chance.choice(list(known))
        whole = _frame(schema_id) + chance.choice(known[schema_id])
        value: bytes | None = whole
        if chance.random() < _LARGE:
            value = _grown(whole, largest_bytes - chance.randrange(4_000) - 500 - len(whole), chance)
        elif chance.random() < _DAMAGED:
            value = _damaged(whole, foreign_ids, chance)
        yield RawRecord(
            key=chance.choices(_KEYS, [60, 20, 10, 5, 1])[0](chance),
            value=value,
            headers=tuple(chance.choice(headers)) if chance.random() < 0.3 else (),
            timestamp_ms=_timestamp(chance) if chance.random() < 0.02 else None,
        )


def drawn(strategy: st.SearchStrategy[_T], chance_seed: int, count: int = DIFFERENT) -> list[_T]:
    """So many examples, always the same of a seed."""
    found: list[_T] = []

    @seed(chance_seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def keep(example: _T) -> None:
        found.append(example)

    keep()
    return found


def _frame(schema_id: int) -> bytes:
    return schema_id.to_bytes(5, "big")


def _timestamp(chance: random.Random) -> int:
    return chance.choice([-1, 0, 1, 1_356_998_400_000, -62_135_596_800_001, -(2**62), -2, 253_402_300_800_000, 2**62])


def _grown(value: bytes, size: int, chance: random.Random) -> bytes:
    """With so many bytes more: a text in place of the first field's, which hardly gets shorter by compression or does, or at the end."""
    text = chance.choice([base64.b64encode(chance.randbytes(size))[:size], b"x" * size])
    length = value[5] >> 1
    if value[5] & 0x81 or chance.random() < 0.2:
        return value + text
    return value[:5] + a_number(len(text)) + text + value[6 + length :]


def _damaged(value: bytes, foreign_ids: Sequence[int], chance: random.Random) -> bytes | None:
    at = chance.randrange(len(value)) if value else 0
    damage: list[Callable[[], bytes | None]] = [
        lambda: None,
        lambda: b"",
        lambda: value[:at],
        lambda: value[:at] + chance.randbytes(1) + value[at + 1 :],
        lambda: value[:at] + value[at + chance.randrange(1, 8) :],
        lambda: value[:at] + chance.randbytes(chance.randrange(1, 8)) + value[at:],
        lambda: value + chance.randbytes(chance.randrange(1, 8)),
        lambda: value[:5] + chance.randbytes(chance.randrange(300)),
        lambda: chance.randbytes(chance.randrange(300)),
        lambda: chance.randbytes(1) + value[1:],
        lambda: _frame(chance.choice(_NOBODYS_IDS)) + value[5:],
        lambda: _frame(chance.choice(foreign_ids)) + value[5:],
        lambda: b'{"parcel_id": "not Avro"}',
        lambda: value[:5] + b"\xfe\xff\xff\xff\x0f" + value[5:],
    ]
    return chance.choice(damage)()
