"""The commands `headrace new …`."""

from __future__ import annotations

from keyword import iskeyword
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contracts.definitions.topic import FieldName, Records, Slug, TopicName

if TYPE_CHECKING:
    from deploy.new.files import NewFiles

new_app = typer.Typer(no_args_is_help=True, help="Write the files of something new, small and valid, to be edited.")

Owner = Annotated[str, typer.Option(metavar="TEAM", help="The team that is asked about it.")]
_CREATE = "while up runs: ./headrace topics create and ./headrace contracts register"


@new_app.command("event")
def event(
    topic: Annotated[str, typer.Argument(help="DOMAIN.PAST_TENSE.v1, e.g. gates.assigned.v1.")],
    producer: Annotated[
        str | None,
        typer.Option(
            "--producer", metavar="SERVICE", help="Who publishes it; by default a service named after the domain."
        ),
    ] = None,
    owner: Owner = "my-team",
) -> None:
    """Write a topic of events, with schema and example."""
    from deploy.local.processes.deployable import ROOT
    from deploy.new.event import new_event

    service = producer or topic.partition(".")[0]
    _valid(TopicName, topic, "TOPIC", "it is DOMAIN.PAST_TENSE.v1 in lower case, e.g. gates.assigned.v1")
    _valid(FieldName, service, "--producer", "it is a name in Python: lower case, digits and _, no keyword")
    there = (ROOT / "services" / service).is_dir()
    if not there:
        _valid_name(service, "--producer")
    _valid_team(owner)
    files = new_event(topic, owner, service, _catalog())
    _write(
        files,
        "edit them, then run ./headrace contracts generate",
        f"publish it in services/{service}" if there else f"./headrace new service {service} --topic {topic}",
        "./headrace contracts check and ./headrace contracts docs",
        _CREATE,
    )


@new_app.command("service")
def service(
    name: Annotated[str, typer.Argument(help="E.g. gates.")],
    topic: Annotated[str, typer.Option(help="What it publishes; the contract names it among the producers.")],
) -> None:
    """Write a service that publishes to a topic, and list it in deploy/deployables.yaml, so that `up` runs it."""
    from deploy.new.service import new_service

    _valid_name(name, "NAME")
    _write(
        new_service(name, topic, _catalog()),
        f"write where the events come from: events() in services/{name}/__main__.py",
        "./headrace contracts check, contracts generate and contracts docs",
        "./headrace up runs it",
    )


@new_app.command("dimension")
def dimension(name: Annotated[str, typer.Argument(help="E.g. stations.")], owner: Owner = "my-team") -> None:
    """Write the contract of a reference table that pipelines look up in."""
    from deploy.new.dimension import new_dimension

    _valid(FieldName, name, "NAME", "lower case, digits and _, no keyword of Python, e.g. stations")
    _valid_team(owner)
    _write(
        new_dimension(name, owner),
        "edit its columns, then run ./headrace contracts check and contracts docs",
        f"start ./headrace up, which uploads contracts/dimensions/{name}.csv; later versions: ./headrace dimensions put FILE",
        "look up in it by a Lookup in a pipeline: docs/guides/add-a-pipeline.md",
    )


@new_app.command("pipeline")
def pipeline(
    name: Annotated[str, typer.Argument(help="The function's name, e.g. gates_enriched.")],
    reads: Annotated[str, typer.Option(metavar="TOPIC", help="Whose records it takes, e.g. gates.assigned.v1.")],
    writes: Annotated[str, typer.Option(metavar="TOPIC", help="A new topic, e.g. gates.assigned.enriched.v1.")],
    records: Annotated[
        Records,
        typer.Option(
            help="How many come of one record: each one, some (a filter), many, an aggregate of several, a join of two topics, distinct "
            "ones: each event once, a sequence: one by what those before it were, or a ranking: a list of groups, by place."
        ),
    ] = "each",
    joined_with: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="With --records join: the second topic, e.g. gates.freed.v1.")
    ] = None,
    united_with: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC", help="With --records aggregate: a second topic that is counted, too, e.g. gates.freed.v1."
        ),
    ] = None,
    in_sql: Annotated[bool, typer.Option("--sql", help="As one SELECT in a SQL file, in place of a function.")] = False,
    owner: Owner = "my-team",
) -> None:
    """Write a pipeline, and the contract of the topic that it writes, with the fields of the one that it reads."""
    from deploy.local.processes.deployable import deployables
    from deploy.new.pipeline import new_pipeline

    _valid_name(name, "NAME")
    _valid(
        TopicName, writes, "--writes", "it is DOMAIN.PAST_TENSE.STAGE.v1 in lower case, e.g. gates.assigned.enriched.v1"
    )
    _valid_team(owner)
    if (records == "join") != (joined_with is not None):
        raise typer.BadParameter("--records join and --joined-with TOPIC belong together", param_hint="--joined-with")
    if united_with is not None and records != "aggregate":
        raise typer.BadParameter("it belongs to --records aggregate", param_hint="--united-with")
    _write(
        new_pipeline(
            *(name, reads, writes, records, owner, _catalog()),
            joined_with=joined_with,
            united_with=united_with,
            in_sql=in_sql,
        ),
        f"edit the {'SELECT' if in_sql else 'function'}, and the schema of {writes}",
        "say it to the audit, too: a filter in services/audit/filters.yaml, lookups in lookups.yaml, groups in aggregates.yaml, pairs in joins.yaml, lists in rankings.yaml",
        "./headrace contracts check, contracts generate and contracts docs",
        # The names replace those that run by default.
        f"./headrace up --pipelines {','.join((*deployables().pipelines, name))} runs it beside those that run by default",
    )


@new_app.command("rule")
def rule(
    name: Annotated[str, typer.Argument(help="E.g. gate_changed_late.")],
    topic: Annotated[str, typer.Option(help="A topic that has alerting among its consumers.")],
    field: Annotated[str | None, typer.Option(help="A numeric field; the topic's first by default.")] = None,
    threshold: Annotated[float, typer.Option(help="From which value on it fires.")] = 1_000_000,
) -> None:
    """Add an alert rule to services/alerting/rules.yaml. While alerting runs, it is in force about a second later."""
    from deploy.new.rule import new_rule

    _write(
        new_rule(name, topic, field, threshold, _catalog()),
        "edit operator, threshold, group_by and message",
        "./headrace rules check",
    )


def _catalog() -> Any:
    from contracts.definitions.catalog import load_catalog

    return load_catalog()


def _valid_name(text: str, option: str) -> None:
    """Of a service or a pipeline: a name of Python's that nobody has."""
    from contracts.definitions.pipelines import pipeline_files
    from contracts.definitions.topic import COMMANDS, LAKE
    from deploy.local.processes.deployable import ROOT, deployables

    _valid(FieldName, text, option, "it is a name in Python: lower case, digits and _, no keyword")
    taken = {LAKE, *COMMANDS, *pipeline_files(), *(each.name for each in deployables().deployables)}
    if text in taken or (ROOT / "services" / text).is_dir():
        raise typer.BadParameter(f"{text!r}: a service, a pipeline or a command has this name", param_hint=option)


def _valid_team(text: str) -> None:
    _valid(Slug, text, "--owner", "lower case, digits and -, e.g. data-platform")


def _valid(kind: Any, text: str, option: str, cure: str) -> None:
    from pydantic import TypeAdapter

    from contracts.definitions.contract_file import load_yaml

    try:
        TypeAdapter(kind).validate_python(text)
        if iskeyword(text) or load_yaml(text.encode()) != text:  # as `on` and `no` are words of YAML's
            raise ValueError
    except ValueError:  # pydantic's ValidationError is one
        raise typer.BadParameter(f"{text!r}: {cure}", param_hint=option) from None


def _write(files: NewFiles, *steps: str) -> None:
    typer.echo("\n".join(files.write()))
    typer.echo("Next:")
    typer.echo("\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1)))
