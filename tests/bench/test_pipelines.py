"""What `bench pipelines` tells of its runs."""

from __future__ import annotations

from tests.bench.pipelines import Shared, differences


def test_a_further_pipeline_costs_the_difference_of_the_medians() -> None:
    one, two = ["a"], ["a", "b"]
    found = [Shared(one, [100.0], 0.2), Shared(two, [160.0], 0.3), Shared(one, [120.0], 0.4), Shared(two, [190.0], 0.7)]

    alone, both = differences(found)

    assert alone == "a, median of 2: 110 MiB (runs from 100 to 120), 0.30 cores"
    assert both == "a, b, median of 2: 175 MiB (runs from 160 to 190), 0.50 cores; +65 MiB and +0.20 cores"
