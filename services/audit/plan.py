"""`Plan`: which hops there are, by the contracts and the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from contracts import topics
from contracts.catalog import Catalog
from contracts.errors import ContractError
from contracts.topic import TopicContract
from services.audit.lookups import Recomputed
from services.audit.shape import Shape


@dataclass(frozen=True, slots=True)
class Source:
    """A topic and what the audit looks at in it. `key` is its name in catalog, rules and lookups.

    `raw`: the contract of the topic that it derives from, `by` the deployable that derives it (consumer group, connector
    name); None for a raw topic. `shared`: fields that a derived record only carries on, `recomputed` those that are looked up again.
    """

    key: str
    contract: TopicContract
    schema: str
    raw: TopicContract | None
    by: str | None
    shared: tuple[str, ...]
    recomputed: Recomputed | None

    @property
    def name(self) -> str:
        """The topic's."""
        return self.contract.name

    @property
    def coordinates_of(self) -> TopicContract:
        """The topic whose places its records name."""
        return self.raw or self.contract

    @property
    def unproven(self) -> tuple[str, ...]:
        """Fields of a derived topic that the audit takes as they are."""
        if self.raw is None:
            return ()
        known = {*self.shared, "revision"}
        if self.recomputed is not None:
            known |= {*self.recomputed.lookups.fields, self.recomputed.lookups.versions}
        return tuple(name for name in Shape(self.schema).columns if name not in known)

    @property
    def lake_table(self) -> str | None:
        """Its table in the lake, if it has one."""
        return None if self.contract.lake is None else self.contract.lake.table


@dataclass(frozen=True, slots=True)
class Plan:
    """The raw topics, the derived ones, and those with a meaning of their own: alerts, what became of dead letters, which
    rules applied.
    """

    raw: tuple[Source, ...]
    derived: tuple[Source, ...]
    alerts: Source
    ledger: Source
    activations: Source

    @property
    def sources(self) -> tuple[Source, ...]:
        """Those that carry events, in the order of the flow."""
        return (*self.raw, *self.derived, self.alerts)


def plan(catalog: Catalog, lookups: Mapping[str, Recomputed]) -> Plan:
    """Raises ContractError if a derived topic does not tell who derives it."""
    raw_of = {
        topic.name: next((raw for raw in catalog.topics.values() if raw.name == topic.derived_from), None)
        for topic in catalog.topics.values()
    }
    carried = {
        raw.name: _shared(topic, raw, catalog) for topic in catalog.topics.values() if (raw := raw_of[topic.name])
    }
    sources = []
    for key, topic in catalog.topics.items():
        raw = raw_of[topic.name]
        sources.append(
            Source(
                key,
                topic,
                catalog.schema(key),
                raw,
                None if raw is None else _deriver(raw, topic),
                carried.get(topic.name if raw is None else raw.name, ()),
                lookups.get(key),
            )
        )
    alerts, ledger, activations = (
        next(source for source in sources if source.contract == catalog.topic(each.name))
        for each in (topics.ALERTS_RAISED, topics.DEADLETTERS_SETTLED, topics.RULES_ACTIVATED)
    )
    others = [source for source in sources if source not in (alerts, ledger, activations)]
    return Plan(
        raw=tuple(source for source in others if source.raw is None),
        derived=tuple(source for source in others if source.raw is not None),
        alerts=alerts,
        ledger=ledger,
        activations=activations,
    )


def _deriver(raw: TopicContract, derived: TopicContract) -> str:
    between = [name for name in derived.producers if name in raw.consumers]
    if len(between) != 1:
        raise ContractError(
            f"{derived.name} is a later stage of {raw.name}: exactly one of its producers must be a consumer of that, "
            f"but there are {len(between)}"
        )
    return between[0]


def _shared(derived: TopicContract, raw: TopicContract, catalog: Catalog) -> tuple[str, ...]:
    """Fields that both have, of the same type."""
    shapes = [
        Shape(catalog.schema(key)).columns
        for wanted in (raw, derived)
        for key, topic in catalog.topics.items()
        if topic == wanted
    ]
    return tuple(sorted(name for name, kind in shapes[0].items() if shapes[1].get(name) == kind))
