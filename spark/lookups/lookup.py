"""`Lookup`: fields of an event that are filled in from a dimension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """A left join: the event's field `by` is looked up in the key of a `dimension`.

    `fields` are those that it fills in, each with the dimension's column that it comes from. `name` is what `unmatched` says where
    no row was found.
    """

    name: str
    dimension: str
    by: str
    fields: Mapping[str, str]

    @property
    def found(self) -> str:
        """The column of a side that is null where no row was found."""
        return f"__{self.name.replace('.', '_')}_key"
