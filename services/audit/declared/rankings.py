"""`Ranking`: what a topic with the places of a list ranks, said a second time beside the pipelines' code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from contracts.definitions.catalog import Catalog
from contracts.errors import ContractError
from services.audit.declared.filters import check_condition
from services.audit.declared.told_files import load
from services.audit.values.shape import Shape

_BY = (pa.string(), pa.int64(), pa.bool_())


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Mean(_Part):
    """`of`: a field of the raw record with whole numbers; `as`: the list's field with their mean."""

    of: str
    name: str = Field(alias="as")


class Ranking(_Part):
    """Of one topic. `by`: fields of the raw record that are grouped by, of the same name in the list; `counts`: the list's field that says how many raw
    records are in the group; `mean`: of a field of these; `where`: which are counted, in CEL.

    `first`: groups with the `highest` mean, or without one the highest count, come first, or with the `lowest`; those with fewer than
    `at_least` records come last. Of equal ones that comes first whose values in `by` do.
    """

    by: tuple[str, ...] = Field(min_length=1)
    counts: str
    mean: Mean | None = None
    first: Literal["highest", "lowest"] = "highest"
    at_least: int = Field(default=1, gt=0)
    where: str | None = None

    @property
    def counted(self) -> str:
        """A hash of what totals depend on: which records are counted, by what, and what is added up."""
        told = [self.by, self.where, None if self.mean is None else self.mean.of]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]

    @property
    def fields(self) -> tuple[str, ...]:
        """Every field of the list that is compared."""
        return (*self.by, self.counts, *([] if self.mean is None else [self.mean.name]))


def load_rankings(path: Path, catalog: Catalog) -> dict[str, Ranking]:
    """By topic. Raises CouldNotAudit, naming file and topic, if it is not readable or names what no contract knows."""
    return load(path, Ranking, partial(_checked, catalog))


def _checked(catalog: Catalog, name: str, ranking: Ranking) -> Ranking:
    topic = catalog.topic(name)
    if not topic.is_ranking:
        raise ContractError(f"{name} is no ranking: its contract does not say records: ranking")
    raw_name = str(topic.made_of)
    key = next(key for key, each in catalog.topics.items() if each.name == raw_name)
    theirs, own = Shape(catalog.schema(key)).columns, Shape(catalog.schema(name)).columns
    for field in ranking.by:
        if theirs.get(field) not in _BY or theirs.get(field) != own.get(field):
            there = " and ".join(f"{columns.get(field, 'none')}" for columns in (theirs, own))
            raise ContractError(
                f"{name}: by {field}: {raw_name} and {name} must both have it, a text, a whole number or a boolean, not {there}"
            )
    _check_kind(f"{name}: counts", own, ranking.counts, name, pa.int64(), "an int or a long")
    if ranking.mean is not None:
        _check_kind(f"{name}: mean: of", theirs, ranking.mean.of, raw_name, pa.int64(), "an int or a long")
        _check_kind(f"{name}: mean: as", own, ranking.mean.name, name, pa.float64(), "a double")
    if ranking.where is not None:
        check_condition(f"{name}: where", ranking.where, theirs, raw_name)
    return ranking


def _check_kind(
    where: str, columns: Mapping[str, pa.DataType], field: str, topic: str, kind: pa.DataType, said: str
) -> None:
    if columns.get(field) != kind:
        raise ContractError(f"{where}: {field} of {topic} must be {said}, not {columns.get(field, 'none')}")
