"""A pipeline with a state that has begun another run is audited from the first record on, also by an audit since the last clean one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from contracts.servers.registry import Registry
from contracts.servers.s3 import s3_client
from deploy.local.servers.stack import LocalStack
from services.audit.report import Report
from services.audit.state import KEY
from tests.audit.way import RAW, Sent, Way
from tests.sample import topics

DELAYS, SLOWEST = topics.PARCELS_DISPATCHED_DELAYS.name, topics.PARCELS_DISPATCHED_SLOWEST.name
FIRST_RUN, ANOTHER_RUN = "aaaaaaaa", "bbbbbbbb"


@pytest.fixture(scope="module")
def registry(stack: LocalStack) -> Iterator[Registry]:
    with Registry(stack.settings().registry) as client:
        yield client


@pytest.fixture
def delays(stack: LocalStack, registry: Registry, tmp_path: Path) -> Iterator[Way]:
    with Way(stack, registry, tmp_path, more=[DELAYS]) as way:
        yield way
        _forget(way)


@pytest.fixture
def slowest(stack: LocalStack, registry: Registry, tmp_path: Path) -> Iterator[Way]:
    with Way(stack, registry, tmp_path, more=[SLOWEST]) as way:
        yield way
        _forget(way)


def _forget(way: Way, *fields: str) -> None:
    """There is no last clean audit, or it left a state without these fields, as an older version did."""
    s3, bucket = s3_client(way.settings.s3), way.settings.s3.bucket
    if not fields:
        s3.delete_object(Bucket=bucket, Key=KEY)
        return
    state = json.loads(s3.get_object(Bucket=bucket, Key=KEY)["Body"].read())
    left = {name: each for name, each in state.items() if name not in fields}
    s3.put_object(Bucket=bucket, Key=KEY, Body=json.dumps(left).encode())


def _count(way: Way, dispatches: int, run: str, batch: int, *parcels: Sent, begins: dict[int, int]) -> str:
    """A batch writes the one group of all parcels, which says so many; the group's coordinate."""
    group = "EST/2013-01-01T10:15:00Z"
    fields: dict[str, Any] = {
        "window_id": group,
        "origin": "EST",
        "begins_at": "2013-01-01T10:15:00Z",
        "ends_at": "2013-01-01T10:30:00Z",
        "dispatches": dispatches,
        "delay_mean_minutes": 2.0,
        "delay_p95_minutes": 2.0,
        "is_final": False,
    }
    event = topics.PARCELS_DISPATCHED_DELAYS.model.model_validate(fields).model_dump()
    (made,) = way.derive([Sent(0, group, event, f"{group}/{run}/{batch}")], DELAYS)
    way.run_on("delays_by_origin", DELAYS, run, batch, *parcels, begins=begins)
    return way.at(0, made.offset, DELAYS)


def _rank(way: Way, dispatches: int, run: str, batch: int, *parcels: Sent, begins: dict[int, int]) -> str:
    """A batch writes a list with the one line of all parcels, which says so many; the coordinate of its place."""
    fields: dict[str, Any] = {
        "place": 1,
        "origin": "EST",
        "destination": "IAH",
        "dispatches": dispatches,
        "late_mean_minutes": 2.0,
        "last_dispatched_at": "2013-01-01T10:17:00Z",
    }
    event = topics.PARCELS_DISPATCHED_SLOWEST.model.model_validate(fields).model_dump()
    (made,) = way.derive([Sent(0, "1", event, f"1/{run}/{batch}")], SLOWEST)
    way.run_on("slowest_lines", SLOWEST, run, batch, *parcels, begins=begins)
    return way.at(0, made.offset, SLOWEST)


def _where(way: Way, condition: str) -> None:
    """The rankings file says that these are counted."""
    path = way.settings.rankings_file
    said = yaml.safe_load(path.read_text())
    said[SLOWEST]["where"] = condition
    path.write_text(yaml.safe_dump(said))


def _ranked_again(report: Report) -> int:
    return sum(tally.notes["places ranked again"] for tally in report.tallies)


def _found(report: Report) -> list[tuple[str, str]]:
    return [(each.kind, each.coordinate) for each in report.findings]


def _dispatched(way: Way, count: int) -> list[Sent]:
    parcels = way.dispatch(count)
    way.run(parcels)
    return parcels


def test_what_a_rebuild_has_not_counted_is_lost_also_for_the_next_audit(delays: Way) -> None:
    parcels = _dispatched(delays, 3)
    _count(delays, 3, FIRST_RUN, 0, *parcels, begins={0: 0})
    first = delays.audit()
    assert first.findings == []
    again = delays.audit(full=False)
    assert (again.findings, again.since) == ([], first.cut_at), "the run is the same"
    rebuilt = _count(delays, 1, ANOTHER_RUN, 0, *parcels, begins={0: 0})
    assert _found(delays.audit(full=False)) == [("lost", rebuilt)]
    assert _found(delays.audit(full=False)) == [("lost", rebuilt)], "until it is not so any more"
    _count(delays, 3, ANOTHER_RUN, 1, *parcels, begins={0: 0})
    right = delays.audit(full=False)
    assert (right.findings, right.since) == ([], None)
    assert delays.audit(full=False).since == right.cut_at


def test_what_a_run_that_began_anew_has_not_counted_is_lost_also_for_the_next_audit(delays: Way) -> None:
    before = _dispatched(delays, 2)
    _count(delays, 2, FIRST_RUN, 0, *before, begins={0: 0})
    assert delays.audit().findings == []
    since = _dispatched(delays, 2)
    anew = _count(delays, 2, ANOTHER_RUN, 0, *since, begins={0: before[-1].offset + 1})
    assert _found(delays.audit(full=False)) == [("lost", anew)]


def test_after_an_audit_that_did_not_keep_the_run_everything_is_looked_at_once(delays: Way) -> None:
    _count(delays, 2, FIRST_RUN, 0, *_dispatched(delays, 2), begins={0: 0})
    assert delays.audit().findings == []
    _forget(delays, "runs")
    once = delays.audit(full=False)
    assert (once.findings, once.since) == ([], None)
    assert delays.audit(full=False).since == once.cut_at


def test_a_list_of_another_run_is_ranked_again_by_the_next_audit(slowest: Way) -> None:
    parcels = _dispatched(slowest, 3)
    _rank(slowest, 3, FIRST_RUN, 0, *parcels, begins={0: 0})
    first = slowest.audit()
    assert (first.findings, _ranked_again(first)) == ([], 1)
    again = slowest.audit(full=False)
    assert (again.findings, again.since, _ranked_again(again)) == ([], first.cut_at, 1), "the run is the same"
    rebuilt = _rank(slowest, 2, ANOTHER_RUN, 0, *parcels, begins={0: 0})
    assert _found(slowest.audit(full=False)) == [("lost", rebuilt)]
    _rank(slowest, 3, ANOTHER_RUN, 1, *parcels, begins={0: 0})
    right = slowest.audit(full=False)
    assert (right.findings, right.since, _ranked_again(right)) == ([], None, 1)
    after = slowest.audit(full=False)
    assert (after.findings, after.since, _ranked_again(after)) == ([], right.cut_at, 1)


def test_a_list_that_is_told_otherwise_is_ranked_again_by_the_next_audit(slowest: Way) -> None:
    made = _rank(slowest, 3, FIRST_RUN, 0, *_dispatched(slowest, 3), begins={0: 0})
    assert slowest.audit().findings == []
    _where(slowest, "late_minutes != 2")
    assert _found(slowest.audit(full=False)) == [("phantom", made)]
    _where(slowest, "late_minutes == 2")
    right = slowest.audit(full=False)
    assert (right.findings, right.since, _ranked_again(right)) == ([], None, 1)
    assert slowest.audit(full=False).since == right.cut_at


def test_a_list_that_nobody_can_rank_again_is_looked_at_once(slowest: Way) -> None:
    parcels = _dispatched(slowest, 3)
    _rank(slowest, 3, FIRST_RUN, 0, *parcels, begins={0: 0})
    slowest.forget(RAW, 0, 1)
    first = slowest.audit()
    assert (first.findings, _ranked_again(first)) == ([], 0)
    assert slowest.audit(full=False).since == first.cut_at
    _forget(slowest, "rankings")
    once = slowest.audit(full=False)
    assert (once.findings, once.since) == ([], None), "as after an audit that did not keep it"
    assert slowest.audit(full=False).since == once.cut_at
    _rank(slowest, 2, ANOTHER_RUN, 0, *parcels, begins={0: 1})
    rebuilt = slowest.audit(full=False)
    assert (rebuilt.findings, rebuilt.since, _ranked_again(rebuilt)) == ([], None, 1)
