"""What the audit keeps for an aggregate: `Members`, of each raw record its group, and `Groups`, of each record of the aggregate what it says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from services.alerting.rules.condition import Condition
from services.audit.declared.aggregates import Aggregate, Gap
from services.audit.declared.filters import wanted
from services.audit.values.digest import Digests, digests, mix, salt
from services.audit.values.place import together

Instants = npt.NDArray[np.int64]
"""Microseconds since 1970; NEVER where there is none."""

NEVER = int(np.iinfo(np.int64).min)
FINAL = "is_final"
"""The platform's field of an aggregate: whether nothing can change it any more."""

NO_BATCH = -1
MINUTE = 60_000_000
"""In microseconds."""
_BATCH = re.compile(rb"0|[1-9][0-9]{0,15}")


@dataclass(frozen=True, slots=True)
class Members:
    """One entry of each array for each raw record, 16 bytes: the digest of what it is grouped `by`, and the time `of` its event, NEVER
    if it has none or can't be read. `left_out`: which ones the condition leaves out; empty where there is none.
    `until`, where windows are sessions: when that of the record alone ends; else empty.
    """

    by: Digests
    of: Instants
    left_out: npt.NDArray[np.bool_]
    until: Instants = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def belong(self) -> npt.NDArray[np.bool_]:
        """Which ones belong to a group."""
        found: npt.NDArray[np.bool_] = self.of != NEVER
        return found & ~self.left_out if len(self.left_out) else found

    @property
    def earliest_end(self) -> Instants:
        """Before that no window ends that one of them lies in."""
        return self.until if len(self.until) else self.of + 1

    @classmethod
    def of_rows(
        cls,
        aggregate: Aggregate,
        condition: Condition | None,
        columns: Mapping[str, pa.Array],
        good: npt.NDArray[np.bool_],
    ) -> Self:
        """`columns` are of the `good` rows."""
        rows = int(good.sum())
        by, of = np.zeros(len(good), np.uint64), np.full(len(good), NEVER)
        by[good], of[good] = grouped_by(aggregate, columns, rows), instants(columns[aggregate.window.of])
        left_out = np.zeros(0 if condition is None else len(good), np.bool_)
        if condition is not None:
            left_out[good] = ~wanted(condition, columns, rows)
        until = np.zeros(0, np.int64)
        if (gap := aggregate.window.gap) is not None:
            until = np.full(len(good), NEVER)
            until[good] = _until(gap, of[good], columns)
        return cls(by, of, left_out, until)

    @classmethod
    def joined(cls, parts: Sequence[Members]) -> Self:
        """All of them, in this order."""
        return cls(**together(parts, {"by": np.uint64, "of": np.int64, "left_out": np.bool_, "until": np.int64}))


@dataclass(frozen=True, slots=True)
class Groups:
    """One entry of each array for each record of an aggregate, as in `Records`: what it is grouped `by`, the bounds of its window, how many
    raw records it counts, whether it says that it is final. `united`, of two topics: how many it counts of the second, while `count` is of the first; else empty.

    `run` is the digest of its id's run, `batch` its batch, NO_BATCH if the id names none. `has_own_id`: the id names the record's key;
    `has_own_key`: the key is what the contract's field says. `keys` are the texts of keys by their digests.
    """

    by: Digests
    begins: Instants
    ends: Instants
    count: npt.NDArray[np.int64]
    is_final: npt.NDArray[np.bool_]
    run: Digests
    batch: npt.NDArray[np.int64]
    has_own_id: npt.NDArray[np.bool_]
    has_own_key: npt.NDArray[np.bool_]
    keys: Mapping[int, str]
    united: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of_rows(
        cls,
        aggregate: Aggregate,
        key_field: str,
        keys: Sequence[bytes | None],
        ids: Sequence[bytes | None],
        columns: Mapping[str, pa.Array],
        good: npt.NDArray[np.bool_],
    ) -> Self:
        """`columns` are of the `good` rows, `key_field` is the contract's key."""
        rows, count = int(good.sum()), len(good)
        named = [_parsed(each) for each in ids]
        own = digests(pa.array(keys, pa.binary()))
        texts = {
            int(digest): (key or b"").decode(errors="replace")
            for digest, key in dict(zip(own.tolist(), keys, strict=True)).items()
        }
        by, key = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
        by[good], key[good] = grouped_by(aggregate, columns, rows), digests(columns[key_field])

        def spread(values: npt.NDArray[Any], otherwise: Any) -> npt.NDArray[Any]:
            found = np.full(count, otherwise, values.dtype)
            found[good] = values
            return found

        def counted(name: str) -> npt.NDArray[np.int64]:
            return spread(pc.fill_null(columns[name], 0).to_numpy().astype(np.int64), 0)

        final = columns.get(FINAL)
        return cls(
            by,
            spread(instants(columns[aggregate.window.begins]), NEVER),
            spread(instants(columns[aggregate.window.ends]), NEVER),
            counted(aggregate.counts),
            spread(
                np.full(rows, aggregate.output == "append")
                if final is None
                else np.asarray(pc.fill_null(final, False).to_numpy(zero_copy_only=False)),
                False,
            ),
            digests(pa.array([run for _, run, _ in named], pa.binary())),
            np.array([batch for _, _, batch in named], np.int64),
            np.array([of == key for (of, _, _), key in zip(named, keys, strict=True)], np.bool_),
            ~good | (key == own),
            texts,
            np.zeros(0, np.int64) if aggregate.united is None else counted(aggregate.united.counts),
        )

    @classmethod
    def joined(cls, parts: Sequence[Groups]) -> Self:
        """All of them, in this order."""
        kinds: dict[str, Any] = {"by": np.uint64, "begins": np.int64, "ends": np.int64, "count": np.int64}
        kinds |= {
            "is_final": np.bool_,
            "run": np.uint64,
            "batch": np.int64,
            "has_own_id": np.bool_,
            "has_own_key": np.bool_,
            "united": np.int64,
        }
        return cls(
            **together(parts, kinds), keys={digest: text for part in parts for digest, text in part.keys.items()}
        )


def grouped_by(aggregate: Aggregate, columns: Mapping[str, pa.Array], rows: int) -> Digests:
    """One digest for each row of the fields that are grouped by. A null is a value of its own, and not a field's default."""
    total = np.zeros(rows, np.uint64)
    for name in aggregate.by:
        total += mix(digests(columns[name]) ^ salt(name))
    return total


def _until(gap: Gap, of: Instants, columns: Mapping[str, pa.Array]) -> Instants:
    minutes = np.full(len(of), gap.minutes)
    if gap.by is not None:
        found = pc.index_in(columns[gap.by], pa.array(list(gap.of), pa.string()))
        known = pc.is_valid(found).to_numpy(zero_copy_only=False)
        minutes[known] = np.array(list(gap.of.values()))[pc.fill_null(found, 0).to_numpy()[known]]
    return np.where(of == NEVER, NEVER, of + minutes * MINUTE)


def instants(column: pa.Array) -> Instants:
    """Those of a column of timestamps."""
    found = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    return np.array(pc.fill_null(found, NEVER).to_numpy(), np.int64)


def _parsed(event_id: bytes | None) -> tuple[bytes | None, bytes | None, int]:
    """Key, run and batch of an id KEY/RUN/BATCH; a key may have slashes."""
    parts = (event_id or b"").rsplit(b"/", 2)
    if len(parts) != 3 or not parts[1] or not _BATCH.fullmatch(parts[2]):
        return None, None, NO_BATCH
    return parts[0], parts[1], int(parts[2])
