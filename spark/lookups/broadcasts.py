"""Broadcast tables that outlast a batch: `Broadcasts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame

from contracts.definitions.lookup import Lookup
from spark.lookups.dimensions import Dimension
from spark.runtime.internals.broadcasts import kept

Sides = Callable[[Mapping[str, Dimension]], list[DataFrame]]
"""Makes what is joined with events, in the order of the lookups."""


def sides_of(lookups: Sequence[Lookup], make: Sides, *, keep: bool) -> Sides:
    """`make`, or with `keep` what it makes as broadcasts that outlast a query."""
    return Broadcasts(lookups, make).sides if keep else make


class Broadcasts:
    """The sides of lookups, on every executor for as long as their dimension's version is the newest.

    Spark plans a broadcast for each query, and collects its rows by a job of its own: four jobs for each small batch. But a
    plan may hold a broadcast that was there before, as those do that Spark adapts while they run; so may ours.
    """

    def __init__(self, lookups: Sequence[Lookup], sides: Sides) -> None:
        """`sides`: what is joined, in the order of the `lookups`."""
        self._lookups, self._make = lookups, sides
        self._of: Mapping[str, Dimension] = {}
        self._sides: list[DataFrame] = []

    def sides(self, dimensions: Mapping[str, Dimension]) -> list[DataFrame]:
        """For `spark.lookups.join.look_up`; sent again only when one of the dimensions was read anew."""
        if dimensions != self._of:
            planned = self._make(dimensions)
            self._sides = [kept(side, lookup.keys) for side, lookup in zip(planned, self._lookups, strict=True)]
            self._of = dimensions
        return self._sides
