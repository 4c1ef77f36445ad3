"""What `headrace state` makes of what `python -m spark state` prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from deploy.errors import DeployError
from deploy.records.state import as_json, state, text
from services.alerting.rules.condition import Condition
from spark.state.summary import StatePartition, StateSummary, StateTable

TEN = datetime(2026, 1, 1, 10, tzinfo=UTC)
SUMMARY = StateSummary(
    pipeline="pairs",
    topic="pairs.v1",
    run="1f3c9a2e",
    batch=17,
    committed_at=TEN,
    coming=18,
    watermark=TEN,
    unfit=None,
    partitions=(
        StatePartition(number=0, rows=3, stored_bytes=1_234_500),
        StatePartition(number=1, rows=1, stored_bytes=90),
    ),
    tables=(
        StateTable(name="left.v1", rows=3, columns=("name", "at", "matched"), instants=("at",)),
        StateTable(name="right.v1", rows=1, columns=("other", "matched"), instants=()),
    ),
)
ROWS: list[tuple[int, dict[str, Any]]] = [
    (0, {"name": "a", "at": "2026-01-01T09:00:00.000Z", "matched": True}),
    (0, {"name": "b\x1b[2J", "at": None, "matched": False}),
    (0, {"name": "c" * 60, "at": "2026-01-01T11:00:00.000Z", "matched": False}),
    (1, {"other": None, "matched": False}),
]


def printed(rows: Sequence[tuple[int, dict[str, Any]]] = ROWS, **summary: object) -> list[str]:
    return [SUMMARY.model_copy(update=summary).model_dump_json(), *[json.dumps(each) for each in rows]]


def test_the_summary_comes_first_and_nothing_in_a_row_is_obeyed() -> None:
    assert list(text(*state(printed(), None, 2))) == [
        "pairs → pairs.v1, run 1f3c9a2e",
        "behind batch 17, committed 2026-01-01T10:00:00.000Z; batch 18 is planned and not committed",
        "watermark 2026-01-01T10:00:00.000Z: what ended by then is over",
        "fits the pipeline of this tree",
        "state partition  rows  stored",
        "0                3     1,234.5 kB",
        "1                1     0.1 kB",
        "",
        "left.v1: 3",
        "name      at                        matched",
        "a         2026-01-01T09:00:00.000Z  true",
        "b\\x1b[2J  null                      false",
        "… and 1 more: -n shows them",
        "",
        "right.v1: 1",
        "other  matched",
        "null   false",
    ]


def test_a_state_that_does_not_fit_says_why() -> None:
    said = list(text(*state(printed([], unfit="it groups otherwise", watermark=None, coming=None), None, 2)))
    assert said[1:4] == [
        "behind batch 17, committed 2026-01-01T10:00:00.000Z",
        "no watermark yet",
        "does not fit the pipeline of this tree: it groups otherwise",
    ]


@pytest.mark.parametrize(
    ("condition", "names", "holding"),
    [
        ("!matched", [["b\x1b[2J"], [None]], [2, 1]),
        ("at > timestamp('2026-01-01T10:00:00Z')", [["c" * 60], []], [1, 0]),
        ("name == 'a'", [["a"], []], [1, 0]),
    ],
)
def test_a_condition_is_about_the_fields_of_a_row(condition: str, names: list[Any], holding: list[int]) -> None:
    summary, tables = state(printed(), Condition(condition), 1)
    assert [[next(iter(row.values())) for row in each.first] for each in tables] == names
    assert [each.holding for each in tables] == holding
    told = as_json(summary, tables)["tables"]
    assert [(each["rows"], each["holding"]) for each in told] == list(zip([3, 1], holding, strict=True))


def test_a_field_that_no_row_has_is_told() -> None:
    with pytest.raises(DeployError, match="the state has no nme; it has at, matched, name, other"):
        state(printed(), Condition("nme == 'a'"), 1)
