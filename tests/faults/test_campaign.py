"""A short selection of the fault campaign (`pytest -m campaign`); `headrace test --faults` runs all of it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from spark.runtime.mode import Mode
from tests.faults.__main__ import run
from tests.faults.campaign import AFTERWARDS, Campaign, Kept, Outcome
from tests.faults.fault import Shown, fault
from tests.faults.kinds.every import FAULTS, SHORT, SHORT_REAL_TIME
from tests.faults.report import report
from tests.faults.stage.cast import FILTER, PIPELINE
from tests.faults.stage.positions import TARGET
from tests.faults.stage.stage import Stage
from tests.system.verify import records

_SEED = 1


@fault(
    "An enriched record is sent once more, behind live's back, to another partition than its key's; nothing shows it."
)
def doubled_by_hand(stage: Stage, chance: random.Random) -> Shown:
    record = next(records(stage.stack.settings(), TARGET))
    producer = stage.producer()
    others = set(producer.list_topics(TARGET, timeout=10).topics[TARGET].partitions) - {record.partition()}
    producer.produce(TARGET, record.value(), record.key(), min(others), headers=record.headers())
    producer.flush(30)
    producer.close()
    return Shown(0, "things that happened")


def an_outcome(name: str, *trouble: str) -> Outcome:
    peaks = {"live": 900}
    return Outcome(name, "It happens.", "1 kill", 100, 3, 0, 1, 0, 0, 0, 2.0, 3.0, peaks, list(trouble), f"c{name}")


def test_every_fault_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_a_fault_of_another_mode_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["live_checkpoint_old"], [1], strikes=1, mode=Mode.REAL_TIME) == 2
    assert "in the mode real-time there is no fault live_checkpoint_old; there are " in capsys.readouterr().err


def test_the_last_outcome_of_each_fault_is_kept(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "results" / "seed-1.jsonl")
    for outcome in (an_outcome("one", "it was lost"), an_outcome("two"), an_outcome("one")):
        kept.add(outcome)
    assert kept.outcomes() == {"one": an_outcome("one"), "two": an_outcome("two")}
    assert kept.outcomes()["one"].passed


def test_the_report_has_a_line_for_each_fault_and_says_what_is_wrong() -> None:
    outcomes = [an_outcome("one"), an_outcome("two", "a/0/1 was made into nothing"), an_outcome(AFTERWARDS)]
    lines = list(report(7, outcomes))
    assert lines[0] == "seed 7: 1 of 2 faults passed"
    assert [line.split()[0] for line in lines[1:]] == ["fault", "one", "two", AFTERWARDS, "at", "at", "two:"]
    assert lines[-3:-1] == ["at cone: one", "at ctwo: two"]
    assert lines[-1] == "two: a/0/1 was made into nothing"


def test_the_line_of_a_fault_that_another_followed_at_once_tells_no_recovery() -> None:
    outcomes = [replace(an_outcome("one"), recovered_seconds=None), an_outcome("two")]
    lines = list(report(7, outcomes))
    assert [line.split()[-1] for line in lines[2:4]] == ["0", "s"]


@pytest.mark.campaign
@pytest.mark.timeout(3000)
def test_nothing_is_lost_or_doubled_under_a_few_faults_and_what_is_would_be_found(tmp_path: Path) -> None:
    with Stage(tmp_path / "stack", strikes=1, say=print, pipelines=(PIPELINE, FILTER)) as stage:
        campaign = Campaign(stage, print, audits_each=False)
        outcomes = list(campaign.run({_SEED: SHORT}))
        assert [outcome.fault for outcome in outcomes] == [*[fault.name for fault in SHORT], AFTERWARDS]
        assert all(outcome.passed for outcome in outcomes), "\n".join(report(_SEED, outcomes))
        planted = campaign.judged(doubled_by_hand)
        odd = campaign.end(500)
    assert planted.trouble[0] == "the fault was not shown to act: 0 things that happened"
    assert planted.doubled == 1
    assert any(each.startswith("audit: doubled") for each in planted.trouble)
    assert {each.split(": ")[1] for each in odd.trouble} == {"doubled", "out of order"}, odd.trouble


@pytest.mark.campaign
@pytest.mark.timeout(3000)
def test_nothing_is_lost_in_real_time_mode_and_what_repeats_is_the_same(tmp_path: Path) -> None:
    with Stage(tmp_path / "stack", strikes=1, say=print, mode=Mode.REAL_TIME, pipelines=(PIPELINE, FILTER)) as stage:
        outcomes = list(Campaign(stage, print, audits_each=False).run({_SEED: SHORT_REAL_TIME}))
    assert all(outcome.passed for outcome in outcomes), "\n".join(report(_SEED, outcomes))
