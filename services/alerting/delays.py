"""`Delays`: a histogram by topic that takes many records at once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector


class Delays(Collector):
    """Seconds between the sending of records and now. prometheus_client's own histogram takes a lock for each value,
    which is too much where a record costs ten microseconds. Observed by one thread, collected by any.
    """

    def __init__(self, name: str, documentation: str, *, bounds: Sequence[float]) -> None:
        """`bounds` are the buckets' upper bounds in seconds, ascending."""
        self._name = name
        self._documentation = documentation
        self._bounds = tuple(bounds)
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def observe(self, topic: str, now: float, sent_ms: Iterable[int]) -> None:
        """Take in records that were sent at these milliseconds since the epoch; `now` is in seconds since then.

        A record from the future counts as no delay, and one that bears no time does not count.
        """
        counts = self._counts.setdefault(topic, [0] * (len(self._bounds) + 1))
        bounds, total = self._bounds, 0.0
        for sent in sent_ms:
            if sent < 0:
                continue
            delay = now - sent / 1000
            counts[bisect_left(bounds, delay)] += 1
            if delay > 0:
                total += delay
        self._sums[topic] = self._sums.get(topic, 0.0) + total

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """What Prometheus reads."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=["topic"])
        names = [*map(str, self._bounds), "+Inf"]
        for topic, counts in list(self._counts.items()):
            buckets = list(zip(names, accumulate(counts), strict=True))
            family.add_metric([topic], buckets, self._sums.get(topic, 0.0))
        yield family
