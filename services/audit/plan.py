"""`Plan`: which hops there are, by the contracts and the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from contracts import topics
from contracts.definitions.catalog import Catalog
from contracts.definitions.dimension import DimensionContract
from contracts.definitions.topic import TopicContract
from contracts.errors import ContractError
from services.audit.declared.aggregates import Aggregate
from services.audit.declared.brings import Brings
from services.audit.declared.distinct import Distinct
from services.audit.declared.joins import Join
from services.audit.declared.lookups import Recomputed
from services.audit.declared.rankings import Ranking
from services.audit.records.groups import FINAL
from services.audit.values.field_sets import FieldSets, field_sets
from services.audit.values.shape import Shape


@dataclass(frozen=True, slots=True)
class Source:
    """A topic and what the audit looks at in it. `key` is its name in catalog, rules and lookups.

    `raw`: the contract of the topic that it derives from, `by` the pipeline that derives it (consumer group, connector
    name); None for a raw topic. `shared`, by derived topic: fields that its records only carry on, by the version of its schema; those of all for a raw topic,
    else its own. `filters`, of a raw topic by derived one: which records that has, where its contract says `some`. `recomputed`: fields that are
    looked up again.

    An aggregate is no derived topic, for its records name no raw ones. `counted_of` are the contracts of the topics whose records it
    counts, one or two, `aggregate` what it counts, if anybody tells; `members`, of a raw topic by aggregate, the same.

    Nor is a join: its records name two. `joined_of` are the contracts of the two topics, `join` which pairs it has, if anybody tells.

    Nor is a topic of distinct events, or a sequence, `distinct`: a raw record may have none there, for another one of its event has, or by what those
    before it were. `joined_of` is the one that it is made of. `halves`, of a raw topic by such a topic, or by joined one: what its records bring; of such a topic under its own name: what they say.

    Nor is a list, which `ranking` tells what it ranks, if anybody does: `counted_of` has the contract of the topic that it is made of; `ranked`, of a raw topic by list, the same.
    """

    key: str
    contract: TopicContract
    schema: str
    raw: TopicContract | None
    by: str | None
    shared: Mapping[str, FieldSets]
    filters: Mapping[str, str]
    recomputed: Recomputed | None
    counted_of: tuple[TopicContract, ...] = ()
    aggregate: Aggregate | None = None
    members: Mapping[str, Aggregate] = field(default_factory=dict)
    joined_of: tuple[TopicContract, ...] = ()
    join: Join | None = None
    distinct: Distinct | None = None
    halves: Mapping[str, Brings] = field(default_factory=dict)
    ranking: Ranking | None = None
    ranked: Mapping[str, Ranking] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The topic's."""
        return self.contract.name

    @property
    def coordinates_of(self) -> TopicContract:
        """The topic whose places its records name."""
        return self.raw or self.contract

    @property
    def origins(self) -> tuple[TopicContract, ...]:
        """The topics that a pipeline makes it of: two of a join, maybe of an aggregate, else one; of a raw topic itself."""
        return self.joined_of or self.counted_of or (self.raw or self.contract,)

    @property
    def made_of(self) -> TopicContract:
        """The first of these."""
        return self.origins[0]

    @property
    def carried(self) -> tuple[tuple[str, ...], ...]:
        """By topic that it joins, or whose events it lets through, the fields that come of that; none where nobody tells."""
        if self.distinct is not None:
            return (self.distinct.fields,)
        return () if self.join is None else tuple(tuple(half.by_joined) for half in self.join.halves)

    @property
    def unproven(self) -> tuple[str, ...]:
        """Fields of a derived topic, an aggregate, a list, a join, a sequence or distinct events that the audit takes as they are."""
        if self.carried:
            known = {name for fields in self.carried for name in fields}
            return tuple(name for name in Shape(self.schema).columns if name not in known)
        if self.aggregate is not None:
            counted = {*self.aggregate.fields, self.contract.key, FINAL}
            return tuple(name for name in Shape(self.schema).columns if name not in counted)
        if self.ranking is not None:
            return tuple(
                name for name in Shape(self.schema).columns if name not in (*self.ranking.fields, self.contract.key)
            )
        if self.raw is None:
            return ()
        known = {*self.shared[self.name][0], "revision"}
        if self.recomputed is not None:
            known |= {*self.recomputed.lookups.fields, self.recomputed.lookups.versions}
        return tuple(name for name in Shape(self.schema).columns if name not in known)

    @property
    def lake_table(self) -> str | None:
        """Its table in the lake, if it has one."""
        return None if self.contract.lake is None else self.contract.lake.table


@dataclass(frozen=True, slots=True)
class Plan:
    """The raw topics, those that join two, those of distinct events and the sequences, the derived ones, the aggregates, the lists, and those with a meaning of their own: alerts,
    what became of dead letters, which rules applied.
    """

    raw: tuple[Source, ...]
    joins: tuple[Source, ...]
    distinct: tuple[Source, ...]
    sequences: tuple[Source, ...]
    derived: tuple[Source, ...]
    aggregates: tuple[Source, ...]
    rankings: tuple[Source, ...]
    alerts: Source
    ledger: Source
    activations: Source
    followed: tuple[tuple[DimensionContract, Source], ...] = ()
    """The dimensions that are made of a topic, with that."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """Those that carry events, in the order of the flow."""
        return (*self.roots, *self.derived, *self.aggregates, *self.rankings, self.alerts)

    @property
    def roots(self) -> tuple[Source, ...]:
        """Those that others may be made of."""
        return (*self.raw, *self.joins, *self.distinct, *self.sequences)


def plan(
    catalog: Catalog,
    lookups: Mapping[str, Recomputed],
    filters: Mapping[str, str],
    aggregates: Mapping[str, Aggregate],
    joins: Mapping[str, Join],
    rankings: Mapping[str, Ranking],
) -> Plan:
    """`lookups`, `filters`, `aggregates`, `joins` and `rankings` are by the catalog's names. Raises ContractError if a derived topic does not tell who derives it."""
    known = {topic.name: (key, topic) for key, topic in catalog.topics.items()}
    derived_of: dict[str, list[str]] = {}
    for key, topic in catalog.topics.items():
        if topic.derived_from in known:
            derived_of.setdefault(str(topic.derived_from), []).append(key)
    distinct = {
        key: Distinct(
            topic.named_by,
            _shared(catalog.schema(known[str(topic.made_of)][0]), catalog.schema(key)),
            filters.get(key),
        )
        for key, topic in catalog.topics.items()
        if (topic.is_distinct or topic.is_sequence) and topic.made_of in known
    }
    sources = []
    for key, topic in catalog.topics.items():
        raw_key, raw = known.get(str(topic.derived_from), (key, None))
        is_known = set(topic.sources) <= known.keys()
        counted_of = (
            tuple(known[name][1] for name in topic.sources)
            if (topic.is_aggregate or topic.is_ranking) and is_known
            else ()
        )
        names_raw = (topic.is_join or topic.is_distinct or topic.is_sequence) and is_known
        joined_of = tuple(known[name][1] for name in topic.sources) if names_raw else ()
        derived = [key] if raw is not None else derived_of.get(topic.name, [])
        sources.append(
            Source(
                key,
                topic,
                catalog.schema(key),
                raw,
                None
                if (made_of := raw or next(iter((*counted_of, *joined_of)), None)) is None
                else _deriver(made_of, topic),
                {
                    catalog.topic(each).name: field_sets(
                        _shared(catalog.schema(raw_key), catalog.schema(each)), catalog.schemas(each)
                    )
                    for each in derived
                },
                {catalog.topic(each).name: filters[each] for each in derived if each in filters} if raw is None else {},
                lookups.get(key),
                counted_of,
                aggregates.get(key) if counted_of else None,
                {
                    each.name: aggregates[name].by_topic[each.sources.index(topic.name)]
                    for name, each in catalog.topics.items()
                    if name in aggregates and topic.name in each.sources
                },
                joined_of,
                joins.get(key) if joined_of else None,
                distinct.get(key),
                {
                    each.name: joins[name].brings(each.sources.index(topic.name))
                    for name, each in catalog.topics.items()
                    if name in joins and topic.name in each.sources
                }
                | {
                    catalog.topic(name).name: each.says if name == key else each.brings
                    for name, each in distinct.items()
                    if name == key or catalog.topic(name).made_of == topic.name
                },
                rankings.get(key) if counted_of else None,
                {
                    catalog.topic(name).name: each
                    for name, each in rankings.items()
                    if catalog.topic(name).made_of == topic.name
                },
            )
        )
    alerts, ledger, activations = (
        next(source for source in sources if source.contract == catalog.topic(each.name))
        for each in (topics.ALERTS_RAISED, topics.DEADLETTERS_SETTLED, topics.RULES_ACTIVATED)
    )
    others = [source for source in sources if source not in (alerts, ledger, activations)]
    return Plan(
        raw=tuple(source for source in others if source.raw is None and not source.contract.is_stateful),
        joins=_in_order([source for source in others if source.contract.is_join]),
        distinct=tuple(source for source in others if source.contract.is_distinct),
        sequences=tuple(source for source in others if source.contract.is_sequence),
        derived=tuple(source for source in others if source.raw is not None),
        aggregates=tuple(source for source in others if source.contract.is_aggregate),
        rankings=tuple(source for source in others if source.contract.is_ranking),
        alerts=alerts,
        ledger=ledger,
        activations=activations,
        followed=tuple(
            (dimension, source)
            for dimension in catalog.dimensions.values()
            for source in others
            if dimension.topic == source.key
        ),
    )


def _in_order(joins: list[Source]) -> tuple[Source, ...]:
    """Each behind the joins that it is made of."""
    found: list[Source] = []
    while left := [each for each in joins if each not in found]:
        missing = {each.name for each in left}
        found += [each for each in left if not missing & {of.name for of in each.joined_of}] or left
    return tuple(found)


def _deriver(raw: TopicContract, derived: TopicContract) -> str:
    between = [name for name in derived.producers if name in raw.consumers]
    if len(between) != 1:
        raise ContractError(
            f"{derived.name} is a later stage of {raw.name}: exactly one of its producers must be a consumer of that, "
            f"but there are {len(between)}"
        )
    return between[0]


def _shared(raw: str, derived: str) -> tuple[str, ...]:
    """Fields that two schemas have, of the same type."""
    columns, others = Shape(raw).columns, Shape(derived).columns
    return tuple(sorted(name for name, kind in columns.items() if others.get(name) == kind))
