"""The flow diagram: who sends what to whom, as a Mermaid flowchart between two markers of docs/flow.md."""

from __future__ import annotations

from contracts.definitions.catalog import Catalog
from contracts.definitions.pipelines import pipeline_files
from contracts.definitions.topic import COMMANDS, LAKE
from contracts.errors import ContractError

BEGIN, END = "<!-- flow:begin -->", "<!-- flow:end -->"


def diagram(catalog: Catalog) -> str:
    """The Mermaid text, without a fence around it."""
    topics = sorted(catalog.topics.values(), key=lambda topic: topic.name)
    dimensions = sorted(catalog.dimensions.values(), key=lambda dimension: dimension.name)
    deployables = {name for topic in topics for name in (*topic.producers, *topic.consumers)}
    deployables |= {name for dimension in dimensions for name in dimension.consumers}
    if dimensions:
        deployables.add("dimensions")
    in_spark = {LAKE, *pipeline_files()}
    lines = ["flowchart LR"]
    lines += [f"    {_box(name, in_spark)}" for name in sorted(deployables)]
    lines += [f'    {_id(topic.name)}[/"{topic.name}"/]' for topic in topics]
    for topic in topics:
        lines += [f"    {_deployable(name)} --> {_id(topic.name)}" for name in topic.producers]
        lines += [f"    {_id(topic.name)} --> {_deployable(name)}" for name in topic.consumers]
    for topic in topics:
        if topic.lake is not None:
            table = f"table_{topic.lake.table}"
            lines.append(f'    {table}[("lake: {topic.lake.table}<br>{topic.lake.format}")]')
            lines.append(f"    {_deployable('lake')} --> {table}")
    for dimension in dimensions:
        table = f"dimension_{dimension.name}"
        lines.append(f'    {table}[("dimension: {dimension.name}")]')
        lines.append(f"    {_deployable('dimensions')} --> {table}")
        lines += [f"    {table} --> {_deployable(name)}" for name in dimension.consumers]
    lines.append('    dead_letters[/"dead letters: topic name + .dlq"/]')
    # Who only publishes has nothing to set aside; the replaying services read their clock.
    readers = sorted({name for topic in topics for name in topic.consumers} - COMMANDS)
    lines += [f"    {_deployable(name)} -.-> dead_letters" for name in readers]
    return "\n".join(lines)


def with_diagram(text: str, catalog: Catalog) -> str:
    """The `text` of docs/flow.md with the present diagram between the markers. Raises ContractError when they are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ContractError(f"docs/flow.md has no place for the flow diagram: add the lines {BEGIN} and {END}")
    return f"{before}{begin}\n```mermaid\n{diagram(catalog)}\n```\n{end}{after}"


def _box(name: str, in_spark: set[str]) -> str:
    kind = "spark: " if name in in_spark else "headrace " if name in COMMANDS else "services/"
    return f'{_deployable(name)}["{kind}{name}"]'


def _deployable(name: str) -> str:
    return f"run_{_id(name)}"


def _id(name: str) -> str:
    """Mermaid's ids know no dots and no words such as `end`."""
    return name.replace(".", "_").replace("-", "_")
