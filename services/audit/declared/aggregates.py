"""`Aggregate`: what a topic of groups counts, said a second time beside the pipelines' code."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal, Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, model_validator

from contracts.definitions.catalog import Catalog
from contracts.definitions.topic import TopicContract
from contracts.errors import ContractError
from services.audit.declared.filters import check_condition
from services.audit.declared.told_files import load
from services.audit.values.shape import Shape


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Gap(_Part):
    """How long a session goes on behind its last record: so many `minutes`, or those `of` the value that the record has in the field `by`."""

    minutes: int = Field(gt=0)
    by: str | None = None
    of: Mapping[str, int] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _of_a_field(self) -> Self:
        if (self.by is None) != (not self.of):
            raise ValueError("by names the field whose values stand in of: both, or none")
        if min(self.of.values(), default=1) <= 0:
            raise ValueError("of: a gap has minutes")
        return self

    @property
    def longest(self) -> int:
        """In minutes, whatever a record has there."""
        return max([self.minutes, *self.of.values()])


class GroupWindow(_Part):
    """`of` is the raw record's field whose instant lies in the window; `begins` (inclusive) and `ends` (exclusive) are the group's. With a `gap`
    windows are sessions.
    """

    of: str
    begins: str
    ends: str
    gap: Gap | None = None


class United(_Part):
    """Of the other topic whose records are in a group, what an `Aggregate` says of the first: the field `of` its events' time, the group's field that
    `counts` its records, and `where`: which ones.
    """

    of: str
    counts: str
    where: str | None = None


class Aggregate(_Part):
    """Of one topic, or of two that are `united`. `by`: fields of the raw record and of the group; `counts`: the group's field that says how many raw records
    of the first are in it; `where`: which are, in CEL. With the `output` append a group is written when nothing changes it any more.
    """

    window: GroupWindow
    by: tuple[str, ...]
    counts: str
    where: str | None = None
    united: United | None = None
    output: Literal["update", "append"] = "update"

    @model_validator(mode="after")
    def _written_once(self) -> Self:
        if self.window.gap is not None and self.output != "append":
            raise ValueError("window: gap: sessions are written when they are over, so output: append")
        if self.window.gap is not None and self.united is not None:
            raise ValueError(
                "united: sessions of two topics can't be counted again, for either may hold one of the other's together"
            )
        if self.united is not None and self.united.counts == self.counts:
            raise ValueError(
                "united: counts: each topic's records have a count of their own, or one that is lost could stand for one that is doubled"
            )
        return self

    @property
    def fields(self) -> tuple[str, ...]:
        """Every field of a group that is compared."""
        counts = tuple(each.counts for each in self.by_topic)
        return (*self.by, *counts, self.window.begins, self.window.ends)

    @property
    def by_topic(self) -> tuple[Aggregate, ...]:
        """What is counted of each topic, as if its records were all."""
        if self.united is None:
            return (self,)
        one, other = self.model_copy(update={"united": None}), self.united
        window = self.window.model_copy(update={"of": other.of})
        return one, one.model_copy(update={"window": window, "counts": other.counts, "where": other.where})


def load_aggregates(path: Path, catalog: Catalog) -> dict[str, Aggregate]:
    """By topic. Raises CouldNotAudit, naming file and topic, if it is not readable or names what no contract knows."""
    return load(path, Aggregate, partial(_checked, catalog))


def _checked(catalog: Catalog, name: str, aggregate: Aggregate) -> Aggregate:
    topic = catalog.topic(name)
    if not topic.is_aggregate or topic.derivation is None:
        raise ContractError(f"{name} is no aggregate: its contract does not say that a record comes of many")
    if (topic.derivation.united_with is None) != (aggregate.united is None):
        there = topic.derivation.united_with or "one topic alone"
        raise ContractError(
            f"{name}: united: its contract counts {topic.derivation.topic} with {there}: say here what is counted of the same topics"
        )
    for raw_name, counted in zip(topic.sources, aggregate.by_topic, strict=True):
        _check_counted(catalog, name, counted, raw_name)
    if topic.key is None:
        raise ContractError(f"{name} has no key, so nothing tells its groups apart")
    return aggregate


def _check_counted(catalog: Catalog, name: str, aggregate: Aggregate, raw_name: str) -> None:
    key, raw = next((key, each) for key, each in catalog.topics.items() if each.name == raw_name)
    theirs, own = Shape(catalog.schema(key)).columns, Shape(catalog.schema(name)).columns
    _check_window(name, aggregate.window, own, raw)
    _check_gap(name, aggregate.window.gap, theirs, raw_name)
    for field in aggregate.by:
        if theirs.get(field) is None or theirs.get(field) != own.get(field):
            there = " and ".join(f"{theirs_or_own.get(field, 'none')}" for theirs_or_own in (theirs, own))
            raise ContractError(
                f"{name}: by {field}: {raw_name} and {name} must both have it, of one type, not {there}"
            )
    if (found := own.get(aggregate.counts)) != pa.int64():
        raise ContractError(
            f"{name}: counts: {aggregate.counts} of {name} must be an int or a long, not {found or 'none'}"
        )
    if aggregate.where is not None:
        check_condition(f"{name}: where", aggregate.where, theirs, raw_name)


def _check_window(name: str, window: GroupWindow, own: Mapping[str, pa.DataType], raw: TopicContract) -> None:
    if window.of != raw.occurred_at:
        raise ContractError(
            f"{name}: window: of: {window.of} is not {raw.occurred_at}, the time of the events by the contract of {raw.name}"
        )
    for field in (window.begins, window.ends):
        kind = own.get(field)
        if kind is None or not pa.types.is_timestamp(kind):
            raise ContractError(f"{name}: window: {field} of {name} must be an instant, not {kind or 'none'}")


def _check_gap(name: str, gap: Gap | None, theirs: Mapping[str, pa.DataType], raw: str) -> None:
    if gap is not None and gap.by is not None and theirs.get(gap.by) != pa.string():
        raise ContractError(
            f"{name}: window: gap: by: {gap.by} of {raw} must be a string, not {theirs.get(gap.by, 'none')}"
        )
