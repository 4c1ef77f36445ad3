"""`Join`: which pairs a topic of joined records has, said a second time beside the pipelines' code."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from contracts.definitions.catalog import Catalog
from contracts.errors import ContractError
from services.audit.declared.brings import Brings
from services.audit.declared.filters import check_condition
from services.audit.declared.told_files import load
from services.audit.values.shape import Shape


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Apart(_Part):
    """How far the time of the second record is from that of the first, in minutes, both bounds included."""

    least_minutes: int
    most_minutes: int

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.least_minutes > self.most_minutes:
            raise ValueError("least_minutes is more than most_minutes")
        return self


class Half(_Part):
    """What comes of one of the two topics: the `fields` that are carried, under their own names or as the joined record's with the raw one's;
    `where`, in CEL, which records get into the join, if not all do.
    """

    fields: tuple[str, ...] | dict[str, str]
    where: str | None = None

    @property
    def by_joined(self) -> Mapping[str, str]:
        """The fields of the joined record, with the raw record's."""
        return self.fields if isinstance(self.fields, dict) else {name: name for name in self.fields}


class Join(_Part):
    """Of one topic. `equal`: fields of the first topic with those of the second that have the same value. `slot_minutes`: both times lie in the same
    slot of so many minutes, the first of which begins with 1970 in UTC: 60 are the hours of the clock.
    """

    how: Literal["inner", "left_outer"]
    equal: dict[str, str] = Field(min_length=1)
    apart: Apart
    slot_minutes: int | None = Field(default=None, gt=0)
    first: Half
    second: Half

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if both := self.first.by_joined.keys() & self.second.by_joined.keys():
            raise ValueError(f"fields: {', '.join(sorted(both))} can't come of both topics")
        return self

    @property
    def halves(self) -> tuple[Half, Half]:
        """Both."""
        return self.first, self.second

    def brings(self, side: int) -> Brings:
        """What a record of one of the topics brings, 0 for the first."""
        half = self.halves[side]
        by = {name: other if side else name for name, other in self.equal.items()}
        return Brings(by, half.by_joined, half.where, self.slot_minutes)

    @property
    def fields(self) -> tuple[str, ...]:
        """Every field of a joined record that is compared."""
        return (*self.first.by_joined, *self.second.by_joined)


def load_joins(path: Path, catalog: Catalog) -> dict[str, Join]:
    """By topic. Raises CouldNotAudit, naming file and topic, if it is not readable or names what no contract knows."""
    return load(path, Join, partial(_checked, catalog))


def _checked(catalog: Catalog, name: str, join: Join) -> Join:
    topic = catalog.topic(name)
    if not topic.is_join:
        raise ContractError(f"{name} is no join: its contract does not say that a record comes of two topics")
    keys = [next(key for key, each in catalog.topics.items() if each.name == source) for source in topic.sources]
    own, *theirs = [Shape(catalog.schema(key)).columns for key in (name, *keys)]
    first, second = theirs
    for left, right in join.equal.items():
        if first.get(left) is None or first.get(left) != second.get(right):
            there = f"{first.get(left, 'none')} and {second.get(right, 'none')}"
            raise ContractError(
                f"{name}: equal: {left} of {topic.sources[0]} and {right} of {topic.sources[1]} must be of one type, not {there}"
            )
    for word, half, source, columns in zip(("first", "second"), join.halves, topic.sources, theirs, strict=True):
        for joined, raw in half.by_joined.items():
            if own.get(joined) is None or own.get(joined) != columns.get(raw):
                there = f"{own.get(joined, 'none')} and {columns.get(raw, 'none')}"
                raise ContractError(
                    f"{name}: {word}: fields: {joined} of {name} and {raw} of {source} must be of one type, not {there}"
                )
        if half.where is not None:
            check_condition(f"{name}: {word}: where", half.where, columns, source)
    return join
