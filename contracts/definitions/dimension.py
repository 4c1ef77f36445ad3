"""`DimensionContract`: what a dimension file under `dimensions/` says."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from contracts.definitions.topic import FieldName, Party, Slug


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Column(_Section):
    """One column of the published table; `source` is its header in the source file."""

    name: FieldName
    source: str = Field(min_length=1)
    type: Literal["string", "int", "long", "double", "boolean", "date", "timestamp"]
    nullable: bool
    description: str = Field(min_length=1)


class Validity(_Section):
    """The columns that say when a row holds: from the one instant on, and before the other; without end where that is null."""

    begins: FieldName = Field(alias="from")
    ends: FieldName = Field(alias="until")


class DimensionContract(_Section):
    """One dimension table: its source file, its place in the bucket, its columns and its unique key, of one column or several.

    With `valid` a key has several rows, each for a time of its own, and is looked up as of a time.

    `consumers` are the pipelines and commands that look up in the table. `location` is a folder of its own under `dimensions/`: elsewhere lie the lake's
    tables, checkpoints and leases. `null_values` are the texts that mean "no value" in the source file; a publication with more than
    `max_shrink_percent` percent fewer rows than the last one is refused.
    """

    name: FieldName = Field(alias="dimension")
    description: str = Field(min_length=1)
    owner: Slug
    consumers: tuple[Party, ...]
    source: str = Field(pattern=r"^[A-Za-z0-9_.-]+\.csv$")
    location: str = Field(pattern=r"^dimensions/[a-z0-9_-]+$")
    key: tuple[FieldName, ...] = Field(min_length=1)
    valid: Validity | None = None
    null_values: tuple[str, ...]
    max_shrink_percent: float = Field(ge=0, le=100)
    columns: tuple[Column, ...] = Field(min_length=1)
