"""`Retained` as text and as Markdown. What records hold is anybody's: nothing of it reaches a terminal unescaped."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from contracts.checks.retained import Outcome, Retained
from deploy.dead_letter_text import cut, printable

_VALUE_CHARACTERS = 60
_ERROR_CHARACTERS = 200


def retained_lines(found: Sequence[Retained], most: int) -> Iterator[str]:
    """A block for each topic, a line for each outcome."""
    yield f"what the running stack retains, the newest {most:,} records of each partition:"
    if not found:
        yield "no topic and no pipeline has changed that is there already"
    for each in found:
        yield f"{_heading(each)}: {_looked_at(each)}"
        for outcome in each.outcomes:
            what = f"  {outcome.name}" if outcome.what == "field" else outcome.what
            yield f"  {what:<20} {outcome.count:>9,}  {_detail(outcome, str)}".rstrip()


def retained_markdown(found: Sequence[Retained], most: int) -> Iterator[str]:
    """As a part of a pull request's comment."""
    yield f"### What the running stack retains, the newest {most:,} records of each partition"
    yield ""
    if not found:
        yield "No topic and no pipeline has changed that is there already."
        return
    yield "| what | outcome | records | for instance |"
    yield "|---|---|---:|---|"
    for each in found:
        heading = f"`{_heading(each)}`"
        yield markdown_row(heading, _looked_at(each) if each.problem is None else _code(_looked_at(each)), "", "")
        for outcome in each.outcomes:
            loud = outcome.what in ("dead letter", "vanishes")
            what = f"field `{outcome.name}`" if outcome.what == "field" else outcome.what
            yield markdown_row("", f"**{what}**" if loud else what, f"{outcome.count:,}", _detail(outcome, _code))


def markdown_row(*cells: str) -> str:
    """A row of a table, whatever the cells hold."""
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"


def _heading(found: Retained) -> str:
    return found.topic if found.pipeline is None else f"{found.pipeline} → {found.topic}"


def _looked_at(found: Retained) -> str:
    if found.problem is not None:
        return printable(found.problem)
    how = "decoded with the new schema" if found.pipeline is None else "made anew"
    older = f"; {found.older:,} older offsets not looked at" if found.older else ""
    return f"{found.records:,} records {how}{older}"


def _detail(outcome: Outcome, shown: Callable[[str], str]) -> str:
    """What records hold is `shown` as it is, or as code, which Markdown takes for no link, no mention and no markup."""
    place = f"in {shown(cut(outcome.coordinate, _ERROR_CHARACTERS))}" if outcome.coordinate else ""
    if outcome.what == "field":
        return f"{shown(_value(outcome.before))} → {shown(_value(outcome.after))} {place}"
    if outcome.what in ("dead letter", "still a dead letter"):
        return f"{printable(outcome.name)}: {shown(cut(str(outcome.after), _ERROR_CHARACTERS))} {place}"
    return "" if outcome.what == "same" else place


def _code(text: str) -> str:
    """A code span, whatever is in it."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


def _value(value: Any) -> str:
    return cut(json.dumps(value, ensure_ascii=False), _VALUE_CHARACTERS)
