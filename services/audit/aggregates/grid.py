"""`Grid`: windows of one length, one every so often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from services.audit.records.groups import Instants
from services.audit.values.digest import Digests, mix
from services.audit.values.place import concatenated


@dataclass(frozen=True, slots=True)
class Grid:
    """Windows of one `length`, of which one begins at `first` and another every `step`."""

    first: int
    step: int
    length: int

    @classmethod
    def of(cls, begins: Instants, ends: Instants) -> Self | None:
        """Those that these are of; None if nothing tells them: there are none, they are of several lengths, or they overlap and are too few.

        The step may be a multiple of the true one, where few windows are there. Then fewer windows are known.
        """
        lengths = np.unique(ends - begins)
        if len(lengths) != 1:
            return None
        length, step = int(lengths[0]), int(np.gcd.reduce(begins - begins[0]))
        if step % length == 0:
            # As if they lay side by side: each record of a window that is there lies in one of these.
            step = length
        return cls(int(begins[0]), step, length) if step <= length else None

    def windows(self, by: Digests, of: Instants) -> tuple[Digests, Instants, npt.NDArray[np.int64]]:
        """Every window that one of these lies in, once for each `by`: `by`, begin, and the index of one of them."""
        order = np.argsort(of, kind="stable")
        _, firsts = np.unique(paired(by[order], (of[order] - self.first) // self.step), return_index=True)
        # The earliest of each: it lies in all windows that others of its cell lie in, and maybe earlier ones.
        return self._of_rows(order[firsts], by, of, of)

    def later_windows(
        self, by: Digests, of: Instants, over: Instants
    ) -> tuple[Digests, Instants, npt.NDArray[np.int64]]:
        """As `windows`, but of each only those that end after it says that windows are `over`."""
        return self._of_rows(np.arange(len(of)), by, of, np.maximum(of, over))

    def _of_rows(
        self, rows: npt.NDArray[np.int64], by: Digests, of: Instants, after: Instants
    ) -> tuple[Digests, Instants, npt.NDArray[np.int64]]:
        """Every window that one of these rows lies in, and that ends after it says, as `windows` tells them."""
        found: list[tuple[Digests, Instants, npt.NDArray[np.int64]]] = []
        begins = (of[rows] - self.first) // self.step * self.step + self.first
        while (lies := after[rows] < begins + self.length).any():
            rows, begins = rows[lies], begins[lies]
            found.append((by[rows], begins, rows))
            begins = begins - self.step
        bys, starts, indices = (
            concatenated([part[n] for part in found], kind) for n, kind in enumerate((np.uint64, np.int64, np.int64))
        )
        _, unique = np.unique(paired(bys, starts), return_index=True)
        return bys[unique], starts[unique], indices[unique]


def paired(by: Digests, number: npt.NDArray[np.int64]) -> Digests:
    """One digest of both."""
    return mix(by ^ mix(number.astype(np.uint64)))
