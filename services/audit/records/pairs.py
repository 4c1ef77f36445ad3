"""What the audit keeps for joins and distinct events: `Halves`, of each raw record what it brings, and `Pairs`, of each made record what it names and
says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from services.alerting.rules.condition import Condition
from services.audit.declared.brings import Brings
from services.audit.declared.filters import wanted
from services.audit.declared.joins import Join
from services.audit.records.groups import MINUTE, NEVER, Instants, instants
from services.audit.values.digest import NULL, Digests, digests, mix, salt
from services.audit.values.place import Codes, parsed, together
from services.audit.values.shape import row_digests

ALONE = -2
"""In place of the second record's place: the id names none."""


@dataclass(frozen=True, slots=True)
class Halves:
    """One entry of each array for each raw record, 25 bytes: the digest of what it is compared `by`, the slot of its time as well if there
    are slots, NULL if a field of it is null, so that nothing is equal to it; the time `of` its event, NEVER if it can't be read; the digest of what it `says` in a made record; whether a
    filter leaves it out.
    """

    by: Digests
    of: Instants
    says: Digests
    left_out: npt.NDArray[np.bool_]

    @classmethod
    def of_rows(
        cls,
        brings: Brings,
        occurred_at: str,
        condition: Condition | None,
        columns: Mapping[str, pa.Array],
        good: npt.NDArray[np.bool_],
    ) -> Self:
        """`columns` are of the `good` rows."""
        rows, count = int(good.sum()), len(good)
        by, of = np.zeros(count, np.uint64), np.full(count, NEVER)
        says, left_out = np.zeros(count, np.uint64), np.zeros(count, np.bool_)
        of[good] = instants(columns[occurred_at])
        by[good] = _compared(brings, columns, of[good])
        says[good] = row_digests({name: digests(columns[raw]) for name, raw in brings.carried.items()}, rows)
        if condition is not None:
            left_out[good] = ~wanted(condition, columns, rows)
        return cls(by, of, says, left_out)

    @classmethod
    def joined(cls, parts: Sequence[Halves]) -> Self:
        """All of them, in this order."""
        return cls(**together(parts, {"by": np.uint64, "of": np.int64, "says": np.uint64, "left_out": np.bool_}))


@dataclass(frozen=True, slots=True)
class Pairs:
    """One entry of each array for each made record: the places of the raw records that its id names, NOWHERE for what is no coordinate of
    the topic; the second is ALONE if the id names the first only, as that of a distinct event does. The digests of what it says of either; `has_own_key`:
    its key is what the contract's field says.
    """

    first: Codes
    second: Codes
    says_first: Digests
    says_second: Digests
    has_own_key: npt.NDArray[np.bool_]

    @classmethod
    def of_rows(
        cls,
        carried: Sequence[Sequence[str]],
        topics: Sequence[str],
        key_field: str | None,
        key: Digests,
        ids: Sequence[bytes | None],
        columns: Mapping[str, pa.Array],
        good: npt.NDArray[np.bool_],
    ) -> Self:
        """`topics` are those that it is made of, one or both that are joined, and `carried` the fields that come of each; `key` are the digests of the
        records' keys, `columns` of the `good` rows.
        """
        rows, count = int(good.sum()), len(good)
        names = [each or b"" for each in ids]
        named = [each.partition(b"+") if len(topics) > 1 else (each, b"", b"") for each in names]
        places = [
            parsed(topic, pa.array([each[2 * n] for each in named], pa.binary())) for n, topic in enumerate(topics)
        ]
        is_alone = np.array([not each[1] for each in named], np.bool_)
        says = [np.zeros(count, np.uint64), np.zeros(count, np.uint64)]
        for of_one, fields in zip(says, carried, strict=False):
            of_one[good] = row_digests({name: digests(columns[name]) for name in fields}, rows)
        own = np.full(count, NULL)
        if key_field is not None:
            own[good] = digests(columns[key_field])
        return cls(places[0], np.where(is_alone, ALONE, places[-1]), says[0], says[1], ~good | (own == key))

    @classmethod
    def joined(cls, parts: Sequence[Pairs]) -> Self:
        """All of them, in this order."""
        kinds = {"first": np.int64, "second": np.int64, "says_first": np.uint64, "says_second": np.uint64}
        return cls(**together(parts, kinds | {"has_own_key": np.bool_}))


def nothing_said(join: Join) -> np.uint64:
    """What a joined record says of the second topic's record if it has none: nulls."""
    none = {name: np.full(1, NULL) for name in join.second.by_joined}
    return np.uint64(row_digests(none, 1)[0])


def _compared(brings: Brings, columns: Mapping[str, pa.Array], of: Instants) -> Digests:
    """One digest for each row, the same where all fields are equal, and, if there are slots, the times in the same one."""
    total, has_null = np.zeros(len(of), np.uint64), np.zeros(len(of), np.bool_)
    if brings.slot_minutes is not None:
        total += mix(digests(pa.array(of // (brings.slot_minutes * MINUTE))) ^ salt("slot_minutes"))
    for name, field in brings.by.items():
        column = columns[field]
        total += mix(digests(column) ^ salt(name))
        has_null |= column.is_null().to_numpy(zero_copy_only=False)
    total[has_null] = NULL
    return total
