"""`Delays` tells Prometheus what its own histogram would."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram

from services.alerting.delays import Delays

BOUNDS = (0.001, 0.01, 0.1)
NOW = 1_000.0
SECONDS = (0.0, 0.002, 0.005, 0.05, 7.0)


def test_it_counts_as_the_histogram_of_the_library_does() -> None:
    registry = CollectorRegistry()
    theirs = Histogram("delay_seconds", "Delay.", ["topic"], buckets=BOUNDS, registry=registry)
    for seconds in SECONDS:
        theirs.labels("t").observe(seconds)
    ours = Delays("delay_seconds", "Delay.", bounds=BOUNDS)
    ours.observe("t", NOW, [round((NOW - seconds) * 1000) for seconds in SECONDS])
    [expected], [found] = registry.collect(), ours.collect()

    def of(family: object, end: str) -> list[tuple[dict[str, str], float]]:
        samples = family.samples  # type: ignore[attr-defined]
        return [(sample.labels, round(sample.value, 6)) for sample in samples if sample.name.endswith(end)]

    for end in ("_bucket", "_count", "_sum"):
        assert of(found, end) == of(expected, end)


def test_a_record_that_bears_no_time_does_not_count() -> None:
    ours = Delays("delay_seconds", "Delay.", bounds=BOUNDS)
    ours.observe("t", NOW, [-1, 998_000])
    [family] = ours.collect()
    values = {sample.name.removeprefix("delay_seconds"): sample.value for sample in family.samples}
    assert (values["_sum"], values["_count"]) == (2.0, 1)


def test_a_record_from_the_future_counts_as_no_delay() -> None:
    ours = Delays("delay_seconds", "Delay.", bounds=BOUNDS)
    ours.observe("t", NOW, [1_005_000])
    [family] = ours.collect()
    values = {sample.name.removeprefix("delay_seconds"): sample.value for sample in family.samples}
    assert (values["_sum"], values["_count"]) == (0.0, 1)
