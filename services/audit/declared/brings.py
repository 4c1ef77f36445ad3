"""`Brings`: what a raw record brings to a topic whose records are made of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Brings:
    """The fields that it is compared `by`, under the names that they have for all that is compared; those `carried`, under their names in the
    made record; `where`, in CEL, which records have a part, if not all do; `slot_minutes`, if its slot of time is compared, too.
    """

    by: Mapping[str, str]
    carried: Mapping[str, str]
    where: str | None = None
    slot_minutes: int | None = None
