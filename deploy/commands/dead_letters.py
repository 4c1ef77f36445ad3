"""The commands `headrace dlq …`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contracts.records.coordinates import Coordinate
from deploy.moment import moment
from deploy.options import DEFAULT_DIRECTORY, RunningStack

if TYPE_CHECKING:
    from contracts.dead_letters.decoded import Decoder
    from contracts.dead_letters.selection import Selection
    from contracts.dead_letters.topic import DeadLetterTopic

dlq_app = typer.Typer(
    no_args_is_help=True,
    help="Dead letters: records that could not be handled, with the reason; list them, send them back, give them up.",
)

TopicName = Annotated[str | None, typer.Argument(help="A topic, with or without .dlq; default: every topic.")]
Reason = Annotated[str | None, typer.Option(help="Only those with this reason, e.g. UnknownSchemaId.")]
Since = Annotated[
    str | None, typer.Option(help="Only those whose record is not older than this, e.g. 2026-03-02T08:30Z.")
]
Until = Annotated[str | None, typer.Option(help="Only those whose record is older than this.")]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
_REGISTRY_SECONDS = 3.0
_NAMED = 20
"""How many dead letters of each verdict are named, and records that are no entries; all are counted."""


@dlq_app.command("list")
def list_letters(
    topic: TopicName = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=0, help="How many of the newest to show.")] = 20,
    as_json: AsJson = False,
    directory: RunningStack = DEFAULT_DIRECTORY,
) -> None:
    """Count dead letters by topic and reason, and show the newest, decoded as far as possible.

    `open`: nobody has decided yet. `failed again`: open, and its record was sent back once already; a redrive leaves it
    alone unless told --again. `redriven`: its record was sent back. Times are the records' own.
    """
    from contracts.dead_letters.summary import Summary
    from deploy import dead_letter_text as text

    selection = _selection(reason, since, until)
    summary = Summary(limit)
    with _topics(directory, topic) as (found, decoder):
        for each in found:
            ledger = each.ledger(complete=False)
            for letter in filter(selection.takes, each.letters()):
                summary.add(letter, ledger)
        newest = [(letter, state, decoder.decode(letter)) for letter, state in summary.newest()]
    counts = summary.counts()
    if as_json:
        letters = [text.letter_json(*each) for each in newest]
        typer.echo(json.dumps({"counts": [*map(text.count_json, counts)], "letters": letters}, indent=2, default=str))
    elif not counts:
        typer.echo("there are no such dead letters")
    else:
        _echo(text.count_lines(counts))
        for letter, state, decoded in newest:
            _echo(["", *text.letter_lines(letter, state, decoded)])


@dlq_app.command()
def show(
    coordinate: Annotated[
        Coordinate,
        typer.Argument(parser=_coordinate, help="topic/partition/offset of the dead letter, or of its record."),
    ],
    as_json: AsJson = False,
    directory: RunningStack = DEFAULT_DIRECTORY,
) -> None:
    """Show everything about the dead letters of one coordinate: one record may have become several. Exit 1: there is none."""
    from contracts.dead_letters.selection import Selection
    from contracts.dead_letters.summary import state_of
    from deploy import dead_letter_text as text

    selection = Selection(coordinate=str(coordinate))
    topic = coordinate.topic if coordinate.topic.endswith(".dlq") else None
    with _topics(directory, topic) as (found, decoder):
        letters = [
            (letter, state_of(letter, ledger), decoder.decode(letter))
            for each in found
            for ledger in [each.ledger(complete=False)]
            for letter in filter(selection.takes, each.letters())
        ]
    if as_json:
        typer.echo(json.dumps([text.letter_json(*each) for each in letters], indent=2, default=str))
    else:
        for page in letters:
            _echo([*text.page_lines(*page), ""])
    if not letters:
        typer.echo(f"there is no dead letter of {text.printable(str(coordinate))}", err=True)
        raise typer.Exit(1)


@dlq_app.command()
def redrive(
    topic: TopicName = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    coordinate: Annotated[
        Coordinate | None, typer.Option(parser=_coordinate, help="Only this one: a dead letter's or its record's.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also those that failed again after a redrive, because of another fix.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go back.")] = False,
    directory: RunningStack = DEFAULT_DIRECTORY,
) -> None:
    """Send the records of dead letters back to where they came from, after the fix: each once.

    Key, value, headers and timestamp are those of the record, and the header ce_redrivenfrom names the dead letter.
    Killed in the middle, run it again: what has gone back does not go twice. Every reader of the topic gets the
    record, behind those that came since.
    """
    from collections import Counter

    from contracts.dead_letters.letter import DeadLetter
    from contracts.dead_letters.redrive import redrive as send_back
    from contracts.dead_letters.selection import Verdict
    from deploy import dead_letter_text as text

    told: Counter[Verdict] = Counter()

    def tell(letter: DeadLetter, verdict: Verdict) -> None:
        told[verdict] += 1
        if told[verdict] > _NAMED or verdict is Verdict.REDRIVEN or (verdict is Verdict.REDRIVE and not dry_run):
            return
        would = (
            f"would go back to the partition of {letter.origin}" if verdict is Verdict.REDRIVE else f"stays: {verdict}"
        )
        _echo([text.printable(f"{letter.coordinate} ({letter.reason}) {would}")])

    selection = _selection(reason, since, until, coordinate)
    total: Counter[Verdict] = Counter()
    with _topics(directory, topic) as (found, _):
        for each in found:
            # A topic without any must not be fenced for nothing, nor need a ledger.
            if next(filter(selection.takes, each.letters()), None) is not None:
                total += send_back(each, selection, again=again, dry_run=dry_run, on_letter=tell)
    for verdict, count in total.items():
        typer.echo(f"{count} {'would go back' if verdict is Verdict.REDRIVE and dry_run else verdict}")
    if not total:
        typer.echo("there are no such dead letters")


@dlq_app.command()
def purge(
    topic: Annotated[str, typer.Argument(help="A topic, with or without .dlq.")],
    before: Annotated[
        str | None, typer.Option(help="Those whose record is older than this, e.g. 2026-03-02T08:30Z.")
    ] = None,
    settled: Annotated[bool, typer.Option("--settled", help="Those whose record was sent back.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    directory: RunningStack = DEFAULT_DIRECTORY,
) -> None:
    """Give dead letters up: write each into the ledger (deadletters.settled.v1), then delete them for ever.

    Kafka deletes a partition from its beginning only, so one that was not meant keeps all behind it; it says so.
    """
    from contracts.dead_letters.purge import plan_purge
    from contracts.dead_letters.purge import purge as give_up
    from contracts.dead_letters.selection import Selection
    from deploy import dead_letter_text as text

    if (before is None) != settled:
        raise typer.BadParameter("name either --before or --settled")
    with _topics(directory, topic) as ([each], _):
        ledger = each.ledger(complete=False)
        older = Selection(until=moment("--before", before))
        plan = plan_purge(each, ledger.is_redriven if settled else older.takes)
        _echo(text.purge_lines(plan, each.name))
        if not plan.letters:
            typer.echo("nothing to purge")
            return
        if not yes:
            typer.confirm(f"delete {plan.letters} dead letters of {each.name} for ever?", abort=True)
        written = give_up(each, plan)
    typer.echo(f"{plan.letters} deleted, {written} of them newly in the ledger")


@contextmanager
def _topics(directory: Path, topic: str | None) -> Iterator[tuple[list[DeadLetterTopic], Decoder]]:
    from contracts.dead_letters.decoded import Decoder
    from contracts.dead_letters.topic import DeadLetterTopic
    from contracts.definitions.catalog import load_catalog
    from contracts.observe import configure_logging
    from contracts.servers.registry import Registry
    from deploy.local.client import client_settings

    settings, catalog = client_settings(directory), load_catalog()
    # To stderr: stdout is for what was asked for.
    configure_logging(settings.model_copy(update={"log_format": "console"}), service="dlq")
    with Registry(settings.registry, retry_seconds=_REGISTRY_SECONDS) as registry:
        names = sorted(catalog.topics) if topic is None else [topic]
        found = [DeadLetterTopic(settings.kafka, catalog, registry, name) for name in names]
        yield found, Decoder(registry, catalog)
    others = sorted({coordinate for each in found for coordinate in each.passed_over})
    if others:
        named = ", ".join(others[:_NAMED]) + (" …" if len(others) > _NAMED else "")
        typer.echo(f"{len(others)} records of the ledger are no entries, passed over: {named}", err=True)


def _selection(
    reason: str | None, since: str | None, until: str | None, coordinate: Coordinate | None = None
) -> Selection:
    from contracts.dead_letters.selection import Selection

    its = None if coordinate is None else str(coordinate)
    return Selection(reason, moment("--since", since), moment("--until", until), its)


def _coordinate(text: str) -> Coordinate:
    found = Coordinate.parse(text)
    if found is None:
        raise typer.BadParameter("a coordinate is TOPIC/PARTITION/OFFSET, such as alerts.raised.v1/0/17")
    return found


def _echo(lines: list[str] | Iterator[str]) -> None:
    """What was escaped is printed as it is."""
    typer.echo("\n".join(lines))
