"""`DimensionContract`: what a dimension file under `dimensions/` says."""

from __future__ import annotations

import hashlib
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from contracts.definitions.topic import FieldName, Party, Slug, TopicName

SECONDS_BETWEEN_VERSIONS = 5.0
"""For each version pipelines read the whole table again."""

POSITIONS = "headrace.positions"
"""In a version's commit, of a dimension that is made of a topic: JSON with the topic, its id and, by partition, the offset up to which it was read."""
CONTRACT = "headrace.contract"
"""There, too: the `digest` of the contract that it was made by."""
UNKNOWN_IDS = "headrace.unknown_ids"
"""There, too: how many of the records that were read have a schema id that the registry did not know."""

_OF_FILES = ("null_values", "max_shrink_percent")


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Column(_Section):
    """One column of the published table; `source` is its header in the source file, or the field of the topic's events."""

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
    """One dimension table: what it is made of, its place in the bucket, its columns and its unique key, of one column or several.

    It is made of a file, `source`, or of the newest record of each key of a `topic`. With `valid` a key has several rows, each for a time of its own,
    and is looked up as of a time.

    `consumers` are the pipelines and commands that look up in the table. `location` is a folder of its own under `dimensions/`: elsewhere lie the lake's
    tables, checkpoints and leases. `null_values` are the texts that mean "no value" in the source file; a publication of one with more than
    `max_shrink_percent` percent fewer rows than the last one is refused. Of a topic there is at most one version in `every_seconds`.
    """

    name: FieldName = Field(alias="dimension")
    description: str = Field(min_length=1)
    owner: Slug
    consumers: tuple[Party, ...]
    source: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.-]+\.csv$")
    topic: TopicName | None = None
    every_seconds: float | None = Field(default=None, ge=1, le=86_400)
    location: str = Field(pattern=r"^dimensions/[a-z0-9_-]+$")
    key: tuple[FieldName, ...] = Field(min_length=1)
    valid: Validity | None = None
    null_values: tuple[str, ...] | None = None
    max_shrink_percent: float | None = Field(default=None, ge=0, le=100)
    columns: tuple[Column, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _made_of_one(self) -> Self:
        if (self.source is None) == (self.topic is None):
            what = "neither source nor topic" if self.source is None else "both source and topic"
            raise ValueError(f"it has {what}: name the file that it is made of, or the topic")
        if self.topic is not None:
            if given := [name for name in (*_OF_FILES, "valid") if getattr(self, name) is not None]:
                raise ValueError(f"it is made of a topic and has {given[0]}, which is about files: leave that out")
        elif missing := [name for name in _OF_FILES if getattr(self, name) is None]:
            raise ValueError(f"key '{missing[0]}' is missing: add '{missing[0]}:'")
        elif self.every_seconds is not None:
            raise ValueError("it is made of a file and has every_seconds, which is about topics: leave that out")
        return self

    @property
    def made_of(self) -> str:
        """The source file's name, or the topic's."""
        return str(self.source or self.topic)

    def digest(self, schema: str) -> str:
        """Of all that it says, and of the schema by which the topic's records are read: by others the same records may make other rows. Hexadecimal."""
        return hashlib.sha256(f"{self.model_dump_json(exclude_none=True)}\n{schema}".encode()).hexdigest()

    @property
    def seconds_between_versions(self) -> float:
        """Of a topic: at least so long from one version to the next."""
        return SECONDS_BETWEEN_VERSIONS if self.every_seconds is None else self.every_seconds
