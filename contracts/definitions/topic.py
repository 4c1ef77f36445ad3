"""`TopicContract`: what a topic file under `topics/` says."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from contracts.records.limits import DERIVED_BYTES, RAW_BYTES

Compatibility = Literal[
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"
]
"""A registry's compatibility modes: who may read whom when a schema gets a new version."""

LAKE = "lake"
"""The deployable that copies topics into tables, which is no folder under `services/`."""

COMMANDS = frozenset({"dlq", "repair"})
"""The commands of `headrace` that publish to topics or read them for their own work."""

_NAME = r"^[a-z][a-z0-9]*(\.[a-z][a-z0-9]*){1,2}\.v[1-9][0-9]*$"
TopicName = Annotated[str, StringConstraints(pattern=_NAME)]
"""`<domain>.<past-tense event>[.<stage>].v<major>`: lower case, dots, never `_`."""

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$")]
"""A team's name."""

Party = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]*$")]
"""Whoever publishes to a topic or reads it: a service, a pipeline, `lake`, or a command of `headrace`."""

Records = Literal["each", "some", "many", "aggregate", "join", "distinct", "sequence", "ranking"]
"""How many records come of one: exactly one, at most one, any number; or a record comes of many, or of one of each of two topics, or of the first
of those that tell of one event; or at most one comes of one, by what the events before it were; or there is one for each place of a list, made of all.
"""

LATE = ("aggregate", "join", "distinct", "sequence")
"""Those `Records` for which a record of the source may come too late."""

STATEFUL = (*LATE, "ranking")
"""Those that depend on other records than the one that they come of."""

FieldName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ServiceLevels(_Section):
    """What the topic's owner promises: 99 % of records readable within `latency_p99_ms` milliseconds of sending."""

    latency_p99_ms: int = Field(gt=0)
    availability_percent: float = Field(gt=0, le=100)


class DeadLetters(_Section):
    """The topic `<topic>.dlq`: raw bytes with a reason, one partition."""

    retention_days: int = Field(gt=0)


class Lake(_Section):
    """The lake table that the topic's records land in, and the columns it is partitioned by: some with few values.

    A partition is a folder with files of its own: one for each day would be thousands of small files. Versions of the last
    `history_days` can be read; the rows themselves stay. A table has a row of `each` record, or of the `newest` one of each key.
    """

    table: FieldName
    format: Literal["delta"]
    partition_by: tuple[FieldName, ...]
    history_days: int = Field(gt=0)
    rows: Literal["each", "newest"] = "each"


class Derivation(_Section):
    """Events that are made of the records of another topic: one of `each` record, one of `some` of them, `many` of one, an
    `aggregate` of several, maybe also of the topic `united_with`, a `join` of one with one of the topic `joined_with`, the `distinct` ones: one of those
    whose fields `named_by` are equal; or a `ranking` of groups of all of them, a list of so many `places`: the newest record of each counts.

    The coordinate of a record of `topic` is the id (`ce_id`) of the event that is made of it; of many each has the number of its part
    in its id, too. An aggregate has an id of its own; of a join the id has both coordinates, that of `topic` first. These, distinct events and sequences take no
    record whose event is older than the newest one by more than `late_after_minutes`: that goes to the late topic. Of two topics, the newest one of
    the topic that is behind counts, or with `watermark_of` faster that of the one that is ahead: then an idle topic holds up nothing. A distinct event is not let through again as long as the newest one is not later than it by twice that.
    """

    topic: TopicName
    records: Records
    joined_with: TopicName | None = None
    united_with: TopicName | None = None
    named_by: tuple[FieldName, ...] = ()
    places: int | None = Field(default=None, gt=0, le=1_000)
    late_after_minutes: int | None = Field(default=None, gt=0, le=60 * 24 * 30)
    watermark_of: Literal["slower", "faster"] = "slower"

    @model_validator(mode="after")
    def _late_where_it_has_state(self) -> Self:
        if (self.records in LATE) != (self.late_after_minutes is not None):
            raise ValueError(f"late_after_minutes belongs to records: {', '.join(LATE)}, and only there")
        if (self.records == "join") != (self.joined_with is not None):
            raise ValueError("joined_with belongs to records: join, and only there")
        if (self.records == "ranking") != (self.places is not None):
            raise ValueError("places belongs to records: ranking, and only there: how many the list has")
        if self.records != "aggregate" and self.united_with is not None:
            raise ValueError("united_with belongs to records: aggregate, and only there")
        if self.second is None and self.watermark_of != "slower":
            raise ValueError(
                "watermark_of belongs to records: join, and to an aggregate that is united_with another topic, and only there"
            )
        if self.second == self.topic:
            raise ValueError(
                f"{'united_with' if self.joined_with is None else 'joined_with'} names another topic than topic"
            )
        if (self.records == "distinct") != bool(self.named_by):
            raise ValueError("named_by belongs to records: distinct, and only there: the fields that name an event")
        if len({*self.named_by}) < len(self.named_by):
            raise ValueError("named_by has a field twice")
        return self

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose records these events are made of."""
        return (self.topic,) if self.second is None else (self.topic, self.second)

    @property
    def second(self) -> str | None:
        """The other topic of a join, or of an aggregate of two; None of one topic."""
        return self.united_with if self.joined_with is None else self.joined_with


class TopicContract(_Section):
    """One topic: who writes it, who reads it, in which shape, for how long. Field names are the file's keys.

    `schema_file` (key `schema`) is relative to `schemas/`; `key` is the field whose text is the record's key, None for
    a topic without keys; `occurred_at` is the field that holds the event time. `derived_from` says which topic's records the events are made
    of; none for events with ids of their own. Of a `compacted` topic the newest record of each key is kept without end, and `retention_days` is how long
    a record without a value, which takes a key away, can be read.
    """

    name: TopicName = Field(alias="topic")
    description: str = Field(min_length=1)
    owner: Slug
    schema_file: str = Field(alias="schema", pattern=r"^[a-z0-9.]+/[1-9][0-9]*\.avsc$")
    compatibility: Compatibility
    key_field: FieldName | Literal["none"] = Field(alias="key")
    occurred_at: FieldName
    derivation_section: Derivation | Literal["none"] = Field(alias="derived_from")
    partitions: int = Field(gt=0)
    retention_days: int = Field(gt=0)
    compacted: bool = False
    producers: tuple[Party, ...] = Field(min_length=1)
    consumers: tuple[Party, ...]
    personal_data: tuple[FieldName, ...]
    service_levels: ServiceLevels
    dead_letters: DeadLetters
    lake_section: Lake | Literal["none"] = Field(alias="lake")

    @property
    def key(self) -> str | None:
        """The field whose text is the record's key, or None: null keys."""
        return None if self.key_field == "none" else self.key_field

    @property
    def derivation(self) -> Derivation | None:
        """What these events are made of, or None: they have ids of their own."""
        return None if self.derivation_section == "none" else self.derivation_section

    @property
    def made_of(self) -> str | None:
        """The topic whose records these events are made of, or None; of two topics the first."""
        return None if self.derivation is None else self.derivation.topic

    @property
    def sources(self) -> tuple[str, ...]:
        """The topics whose records these events are made of, `made_of` first."""
        return () if self.derivation is None else self.derivation.topics

    @property
    def derived_from(self) -> str | None:
        """The topic whose records' coordinates are the ids of these events, or None: they have ids of their own."""
        return None if self.is_stateful else self.made_of

    @property
    def names_records_of(self) -> str | None:
        """The topic whose records' coordinates are the ids here, for some of them at least; None: an id tells of no record by itself."""
        return self.made_of if self.is_distinct or self.is_sequence else self.derived_from

    @property
    def is_aggregate(self) -> bool:
        """Whether a record comes of many of another topic."""
        return self.derivation is not None and self.derivation.records == "aggregate"

    @property
    def is_compacted(self) -> bool:
        """Whether brokers may remove a record when its key has a newer one."""
        return self.compacted or self.is_aggregate or self.is_ranking

    @property
    def is_ranking(self) -> bool:
        """Whether its records are the places of a list, which is made of all records of another topic."""
        return self.derivation is not None and self.derivation.records == "ranking"

    @property
    def is_join(self) -> bool:
        """Whether a record comes of a record of each of two topics, or of one that has found no other."""
        return self.derivation is not None and self.derivation.records == "join"

    @property
    def is_distinct(self) -> bool:
        """Whether of the records that tell of one event only the first has one here."""
        return self.derivation is not None and self.derivation.records == "distinct"

    @property
    def is_sequence(self) -> bool:
        """Whether a record comes of one other at most, by what the events of its key before it were."""
        return self.derivation is not None and self.derivation.records == "sequence"

    @property
    def named_by(self) -> tuple[str, ...]:
        """The fields that name an event, if these are distinct; else none."""
        return () if self.derivation is None else self.derivation.named_by

    @property
    def is_stateful(self) -> bool:
        """Whether what comes of a record depends on others."""
        return self.derivation is not None and self.derivation.records in STATEFUL

    @property
    def is_filtered(self) -> bool:
        """Whether a record of the topic that it is derived from may have none here."""
        return self.derivation is not None and self.derivation.records in ("some", "many")

    @property
    def has_parts(self) -> bool:
        """Whether a record of the topic that it is derived from may have several here."""
        return self.derivation is not None and self.derivation.records == "many"

    @property
    def most_record_bytes(self) -> int:
        """The size of the largest record, in bytes."""
        return RAW_BYTES if self.derivation is None else DERIVED_BYTES

    @property
    def lake(self) -> Lake | None:
        """Where the records land in the lake, or None: they stay out of it."""
        return None if self.lake_section == "none" else self.lake_section

    @property
    def lands_newest(self) -> bool:
        """Whether the lake has only the newest record of each key."""
        return self.lake is not None and self.lake.rows == "newest"

    @property
    def subject(self) -> str:
        """The registry's subject of the record values."""
        return f"{self.name}-value"

    @property
    def dead_letter_topic(self) -> str:
        """The topic that takes the records which could not be handled."""
        return f"{self.name}.dlq"

    @property
    def late_topic(self) -> str | None:
        """The topic that takes the records which came too late, or None: none can."""
        return f"{self.name}.late" if self.derivation is not None and self.derivation.records in LATE else None

    @property
    def schema_folder(self) -> str:
        """The folder of the schema files, relative to `schemas/`."""
        return self.schema_file.partition("/")[0]

    @property
    def schema_version(self) -> int:
        """The number of the current schema file: 1, 2, …"""
        return int(self.schema_file.rpartition("/")[2].removesuffix(".avsc"))

    @property
    def constant(self) -> str:
        """The handle's name in `contracts.topics`: `ORDERS_PLACED`, and for later majors `ORDERS_PLACED_V2`."""
        return constant_of(self.name)


def constant_of(topic: str) -> str:
    """The name that a topic's handle has in `contracts.topics`."""
    stem, _, major = topic.rpartition(".v")
    return stem.replace(".", "_").upper() + ("" if major == "1" else f"_V{major}")
