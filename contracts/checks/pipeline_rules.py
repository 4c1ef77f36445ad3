"""What a pipeline's file and the contracts say of each other: `check_pipelines`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

from contracts.checks.lookup_rules import lookup_faults
from contracts.definitions.catalog import Catalog
from contracts.definitions.contract_file import Problem, problem_at
from contracts.definitions.lookup import Lookup
from contracts.definitions.pipelines import DeclaredPipeline
from contracts.definitions.topic import TopicContract
from contracts.errors import ContractError


def check_pipelines(catalog: Catalog, pipelines: list[DeclaredPipeline]) -> Iterator[Problem]:
    """What a pipeline's file and the contracts of its topics say of each other."""
    by_constant = catalog.by_constant
    for each in pipelines:
        read, written = ({constant: by_constant.get(constant) for constant in of} for of in (each.inputs, each.writes))
        for constant, topic in (*read.items(), *written.items()):
            if topic is None and not catalog.unread_topics:
                cure = "add its contract, or name another"
                yield Problem(each.file, each.line, f"there is no contract of topics.{constant}", cure)
        raws = [raw for raw in read.values() if raw is not None]
        made = [derived for derived in written.values() if derived is not None]
        if len(raws) < len(read) or len(made) < len(written):
            continue
        for raw in raws:
            if raw.is_compacted:
                what = f"{each.file} reads it, and it is compacted: nobody could tell whether each record was handled"
                cure = f"take {each.name} out, and look up in a dimension with 'topic: {raw.name}'"
                yield problem_at(catalog.root, catalog.topic_file(raw.name), ("consumers",), what, cure)
        for derived in made:
            yield from _check_derivation(catalog, each, derived, tuple(raw.name for raw in raws))
        of_raws = [(raw, "consumers", raw.consumers) for raw in raws]
        for topic, key, names in (*[(derived, "producers", derived.producers) for derived in made], *of_raws):
            if each.name not in names:
                what = f"{each.file} is not among them"
                yield problem_at(catalog.root, catalog.topic_file(topic.name), (key,), what, f"add {each.name}")
    for derived in catalog.topics.values():
        if len(writers := [each.name for each in pipelines if derived.constant in each.writes]) > 1:
            what = f"{' and '.join(writers)} write it, and each coordinate would be there once for each of them"
            cure = "give each pipeline a topic of its own"
            yield problem_at(catalog.root, catalog.topic_file(derived.name), ("producers",), what, cure)
    declared = {(each.name, constant): "producers" for each in pipelines for constant in each.writes}
    declared |= {(each.name, constant): "consumers" for each in pipelines for constant in each.inputs}
    files = {each.name: each.file for each in pipelines}
    for topic in catalog.topics.values():
        for key, parties, verb in (("producers", topic.producers, "write"), ("consumers", topic.consumers, "read")):
            for name in parties:
                if name in files and declared.get((name, topic.constant)) != key:
                    what = f"{files[name]} does not {verb} this topic"
                    cure = f"take {name} out, or change the pipeline"
                    yield problem_at(catalog.root, catalog.topic_file(topic.name), (key,), what, cure)


def check_lookups(catalog: Catalog, pipelines: list[DeclaredPipeline], faulty: Collection[str]) -> Iterator[Problem]:
    """Lookups beside their source and dimensions, but for `faulty` dimensions, and the dimensions' consumers beside the lookups."""
    looking_up: dict[str, list[DeclaredPipeline]] = {name: [] for name in catalog.dimensions}
    for each in pipelines:
        lookups = each.lookups or {}
        yield from _of_lookups(catalog, each, lookups, faulty)
        for dimension in {lookup.dimension for lookup in lookups} & catalog.dimensions.keys():
            looking_up[dimension].append(each)
    files = {each.name: each.file for each in pipelines if each.lookups is not None}
    for name, contract in catalog.dimensions.items():
        readers = {each.name: each.file for each in looking_up[name]}
        wrong = [
            (f"{readers[each]} is not among them", f"add {each}") for each in readers.keys() - {*contract.consumers}
        ]
        wrong += [
            (f"{files[each]} looks nothing up in it", f"take {each} out, or add the lookup")
            for each in contract.consumers
            if each in files and each not in readers
        ]
        for what, cure in wrong:
            yield problem_at(catalog.root, catalog.dimension_file(name), ("consumers",), what, cure)


def _of_lookups(
    catalog: Catalog, pipeline: DeclaredPipeline, lookups: Mapping[Lookup, int], faulty: Collection[str]
) -> Iterator[Problem]:
    by_constant = catalog.by_constant
    source = by_constant.get(pipeline.reads)
    if source is None or not lookups:
        return
    for target in filter(None, map(by_constant.get, pipeline.writes)):
        if target.derivation is not None and target.is_stateful:
            cure = "leave the lookups out"
            what = f"it has lookups, and what it makes of a record depends on others (records: {target.derivation.records})"
            yield Problem(pipeline.file, min(lookups.values()), what, cure)
    with suppress(ContractError):  # its schema is none, which is told elsewhere
        for lookup, what, cure in lookup_faults(lookups, source.name, catalog):
            if lookup.dimension not in faulty:
                yield Problem(pipeline.file, lookups[lookup], f"lookup {lookup.name}: {what}", cure)


def _check_derivation(
    catalog: Catalog, each: DeclaredPipeline, derived: TopicContract, names: tuple[str, ...]
) -> Iterator[Problem]:
    """What the contract of a topic says of the topics, by their names, that the pipeline makes it of."""
    records = "each" if len(each.writes) == 1 else "some"
    said = f"topic: {names[0]}, records: {records}"
    if len(names) > 1:
        key, of_two = ("united_with", "aggregate") if derived.is_aggregate else ("joined_with", "join")
        said = f"topic: {names[0]}, {key}: {names[1]}, records: {of_two}, late_after_minutes: 60"
    what = None
    if derived.sources != names:
        of = " and ".join(derived.sources) or "none"
        what = f"{each.file} makes it of {' and '.join(names)}, but it is derived from {of}"
    elif len(each.writes) > 1 and derived.derivation is not None and derived.derivation.records != "some":
        what = f"{each.file} writes each record to one of {len(each.writes)} topics, so this one has only some of them"
    if what is not None:
        cure = f"write {{{said}}}, or let the pipeline read another topic"
        yield problem_at(catalog.root, catalog.topic_file(derived.name), ("derived_from",), what, cure)
