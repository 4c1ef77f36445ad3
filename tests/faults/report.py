"""The campaign's report: one page, a line for each fault."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.faults.campaign import AFTERWARDS, Outcome

_COLUMNS = (
    "fault",
    "shown by",
    "events",
    "sent again",
    "written again",
    "restarts",
    "lost",
    "doubled",
    "wrong",
    "recovered",
)


def report(seed: int, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """`events`: raw records since the fault before; `sent again`: enriched records that were sent more than once (in
    exactly-once mode those before the last were aborted);
    `written again`: rows that the lake wrote into files and never committed; `recovered`: seconds until nothing waited; none where the next
    fault struck at once: what came of both stands in the line of the last.
    """
    faults = [each for each in outcomes if each.fault != AFTERWARDS]
    yield f"seed {seed}: {sum(each.passed for each in faults)} of {len(faults)} faults passed"
    rows = [_COLUMNS, *map(_cells, outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for row in rows:
        yield "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
    # A campaign that was interrupted goes on, perhaps with a later commit.
    for commit in sorted({each.commit for each in faults if each.commit}):
        yield f"at {commit}: {', '.join(each.fault for each in faults if each.commit == commit)}"
    for outcome in outcomes:
        for each in outcome.trouble[:3]:
            yield f"{outcome.fault}: {each[:300]}"


def _cells(outcome: Outcome) -> tuple[str, ...]:
    counts = (
        outcome.events,
        outcome.sent_again,
        outcome.written_again,
        outcome.restarts,
        outcome.lost,
        outcome.doubled,
        outcome.wrong,
    )
    waited = outcome.recovered_seconds
    return (
        outcome.fault,
        outcome.shown,
        *(f"{count:,}" for count in counts),
        "" if waited is None else f"{waited:.0f} s",
    )
