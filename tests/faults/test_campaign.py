"""A short selection of the fault campaign, with every change; `headrace test --faults` runs all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.campaign import Campaign
from tests.faults.kinds.every import FAULTS, SHORT
from tests.faults.report import report
from tests.faults.stage import Stage

_SEED = 1


def test_every_fault_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.system
@pytest.mark.timeout(600)
def test_nothing_is_lost_or_doubled_or_silent_under_a_few_faults(tmp_path: Path) -> None:
    with Stage(tmp_path / "stack", repeats=1, say=print) as stage:
        outcomes = list(Campaign(stage, _SEED, print).run(SHORT))
    assert all(outcome.passed for outcome in outcomes), "\n".join(report(_SEED, outcomes))
