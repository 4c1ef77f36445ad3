"""Which records lie in which windows, all at once: `inside`, `covered`; `instant_text`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from services.audit.records.groups import Instants
from services.audit.values.digest import Digests

Counts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def inside(
    by: Digests, of: Instants, group_by: Digests, begins: Instants, ends: Instants, upto: Instants | None = None
) -> Counts:
    """For each group how many have its `by`, and lie in its window: at or after its begin, and `upto`, by default `of`, before its end.

    All at once: sorted together, those before each bound are counted. No window holds the whole of another, so what begins before a
    window does not reach its end.
    """
    before_begin = _before(by, of, group_by, begins)
    return _before(by, of if upto is None else upto, group_by, ends) - before_begin


def _before(by: Digests, of: Instants, group_by: Digests, bound: Instants) -> Counts:
    """How many have the `by` of each bound, or a lesser one, and of its own lie before it. Differences of two are of one `by`."""
    groups = len(group_by)
    order = np.lexsort(
        (np.arange(groups + len(by)) >= groups, np.concatenate([bound, of]), np.concatenate([group_by, by]))
    )
    found = np.zeros(groups + len(by), np.int64)
    found[order] = np.cumsum(order >= groups)
    return found[:groups]


def covered(by: Digests, of: Instants, group_by: Digests, begins: Instants, ends: Instants) -> Mask:
    """For each whether it lies in the window of a group with its `by`."""
    groups = len(group_by)
    step = np.concatenate([np.ones(groups, np.int64), np.full(groups, -1), np.zeros(len(by), np.int64)])
    times = np.concatenate([begins, ends, of])
    order = np.lexsort((np.arange(len(times)) >= 2 * groups, times, np.concatenate([group_by, group_by, by])))
    open_windows = np.zeros(len(times), np.int64)
    open_windows[order] = np.cumsum(step[order])
    found: Mask = open_windows[2 * groups :] > 0
    return found


def instant_text(instant: int) -> str:
    """Microseconds since 1970 as people write an instant; as they are if no calendar has it."""
    try:
        found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant)
    except OverflowError:
        return f"{instant} µs since 1970"
    return found.isoformat().replace("+00:00", "Z")
