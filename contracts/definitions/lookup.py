"""`Lookup`: fields of an event that are filled in from a dimension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """A left join: the event's field `by` is looked up in the key of a `dimension`. If the key has several columns, `by` has as many
    fields, in their order. If its rows hold for a time (`valid`), `as_of` is the event's field with the instant that is looked up.

    `fields` are those that it fills in, each with the dimension's column that it comes from. `name` is what `unmatched` says where
    no row was found.
    """

    name: str
    dimension: str
    by: str | tuple[str, ...]
    fields: Mapping[str, str]
    as_of: str | None = None

    @property
    def by_fields(self) -> tuple[str, ...]:
        """What `by` says, one field for each column of the key."""
        return (self.by,) if isinstance(self.by, str) else self.by

    @property
    def needs(self) -> tuple[str, ...]:
        """The event's fields that it asks for."""
        return self.by_fields if self.as_of is None else (*self.by_fields, self.as_of)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of a side that hold the dimension's key, `found` first."""
        return (self.found, *(f"{self.found}_{number}" for number in range(2, len(self.by_fields) + 1)))

    @property
    def interval(self) -> tuple[str, ...]:
        """The columns of a side that say from when until when its row holds; none if it holds at any time."""
        return () if self.as_of is None else (f"{self.found}_from", f"{self.found}_until")

    @property
    def found(self) -> str:
        """The column of a side that is null where no row was found."""
        return f"__{self.name.replace('.', '_')}_key"
