"""`Partners`: the records of the second topic, as those of the first look for them."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from services.audit.records.groups import Instants
from services.audit.values.digest import NULL, Digests

Rows = npt.NDArray[np.int64]
_T = TypeVar("_T", bound=np.generic)


def picked(values: npt.NDArray[_T], rows: Rows) -> npt.NDArray[_T]:
    """The values of these rows; where there are no values at all, zeros."""
    return values[rows] if len(values) else np.zeros(len(rows), values.dtype)


class Partners:
    """Sorted once by what is to be equal, and by time, so that the partners of a record lie side by side. `rows` are theirs in that order."""

    def __init__(self, by: Digests, of: Instants, rows: Rows) -> None:
        """`rows` are those of the records, among all, that may be partners."""
        rows = rows[by[rows] != NULL]
        self._times = np.unique(of[rows])
        self._keys, key = np.unique(by[rows], return_inverse=True)
        # Both ranks in one number: a key's times, in their order, before the next key's.
        place = key * (len(self._times) + 1) + np.searchsorted(self._times, of[rows])
        order = np.argsort(place, kind="stable")
        self.rows, self._places = rows[order], place[order]

    def between(self, by: Digests, earliest: Instants, latest: Instants) -> tuple[Rows, Rows]:
        """For each record with this `by`, the first of `rows` that is not before `earliest`, and the one behind the last that is not after
        `latest`. Both are 0 where no record has this `by`.
        """
        key = np.searchsorted(self._keys, by)
        known = np.flatnonzero(key < len(self._keys))
        known = known[self._keys[key[known]] == by[known]]
        first, behind = np.zeros(len(by), np.int64), np.zeros(len(by), np.int64)
        base = key[known] * (len(self._times) + 1)
        first[known] = np.searchsorted(self._places, base + np.searchsorted(self._times, earliest[known], "left"))
        behind[known] = np.searchsorted(self._places, base + np.searchsorted(self._times, latest[known], "right"))
        return first, behind
