"""The short selection in real-time mode; in a file of its own, so that it runs beside the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.runtime.mode import Mode
from tests.faults.campaign import Campaign
from tests.faults.kinds.every import SHORT_REAL_TIME
from tests.faults.report import report
from tests.faults.stage.load import FILTER, PIPELINE
from tests.faults.stage.stage import Stage

_SEED = 1


@pytest.mark.campaign
@pytest.mark.timeout(3000)
def test_nothing_is_lost_in_real_time_mode_and_what_repeats_is_the_same(tmp_path: Path) -> None:
    with Stage(tmp_path / "stack", strikes=1, say=print, mode=Mode.REAL_TIME, pipelines=(PIPELINE, FILTER)) as stage:
        outcomes = list(Campaign(stage, print, audits_each=False).run({_SEED: SHORT_REAL_TIME}))
    assert all(outcome.passed for outcome in outcomes), "\n".join(report(_SEED, outcomes))
