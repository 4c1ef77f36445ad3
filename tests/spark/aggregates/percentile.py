"""What Spark's `percentile` gives, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(ordered: Sequence[int], share: float) -> float:
    """Interpolated as Spark does it, to the last bit."""
    at = share * (len(ordered) - 1)
    low, high = math.floor(at), math.ceil(at)
    return float(ordered[low]) if low == high else (high - at) * ordered[low] + (at - low) * ordered[high]
