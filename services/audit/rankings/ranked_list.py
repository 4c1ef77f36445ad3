"""`RankedList`: the places of a list, compared with the groups of the raw records that it is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.audit.declared.rankings import Ranking
from services.audit.records.totals import Group, Total
from services.audit.values.finding import Finding, Kind, Tally


@dataclass(frozen=True, slots=True)
class Place:
    """A record of the list, at a `coordinate`: what its key, its id and its fields say. `key` and `event` are None where they can't be read. `is_redriven`:
    it was sent again.
    """

    coordinate: str
    key: str | None
    run: str
    batch: int
    event: Mapping[str, Any] | None
    is_redriven: bool = False


class RankedList:
    """Compares the list of one batch. Pure: findings and a tally come out."""

    def __init__(self, ranking: Ranking, raw: str, target: str, key: str, places: int) -> None:
        """`key` is the list's field with the place; it has so many `places`."""
        self._ranking, self._key, self._places = ranking, key, places
        self.hop, self._place = f"{raw} → {target}", f"{target}/0"
        self.tally = Tally(self.hop, self._place)

    def findings(
        self, made: Sequence[Place], totals: Mapping[Group, Total] | None, unknown: str = ""
    ) -> Iterator[Finding]:
        """`made` are the records of the newest batch, `totals` those of all raw records that it has taken in; None if nobody knows them, and why they
        are `unknown`: then only what the list says by itself is compared.
        """
        self.tally.records += len(made)
        good = []
        for each in made:
            if each.event is None:
                yield self._finding("phantom", each.coordinate, "it can't be decoded")
            elif each.key != str(each.event[self._key]):
                what = f"its key is {each.key!r:.40}, and its {self._key} {each.event[self._key]}"
                yield self._finding("changed", each.coordinate, what)
            else:
                good.append((each, each.event))
        by_place: dict[int, tuple[Place, Mapping[str, Any]]] = {}
        for each, event in good:
            place = event[self._key]
            if place in by_place:
                what = f"batch {each.batch} has the place {place} twice: {by_place[place][0].coordinate}, too"
                yield self._finding("doubled", each.coordinate, what)
            elif not 1 <= place <= self._places:
                yield self._finding("phantom", each.coordinate, f"there is no place {place} of {self._places}")
            else:
                by_place[place] = each, event
        if totals is not None and not all(each.is_exact for each in totals.values()):
            totals, unknown = None, "sums are greater than a double holds"
        if totals is None:
            self.tally.notes[f"places not ranked again, for {unknown}"] += len(by_place)
            return
        self.tally.notes["places ranked again"] += len(by_place)
        expected = self._ranked(totals)[: self._places]
        where = {group: number for number, group in enumerate(expected, 1)}
        for place, group in enumerate(expected, 1):
            if place not in by_place:
                last = made[-1].coordinate if made else self._place
                yield self._finding("lost", last, f"the list has no place {place}, which is that of {_said(group)}")
        for place, (record, event) in sorted(by_place.items()):
            yield from self._compared(place, record.coordinate, event, totals, where)

    def _compared(
        self,
        place: int,
        coordinate: str,
        event: Mapping[str, Any],
        totals: Mapping[Group, Total],
        where: Mapping[Group, int],
    ) -> Iterator[Finding]:
        ranking, group = self._ranking, tuple(event[name] for name in self._ranking.by)
        total, count = totals.get(group), event[ranking.counts]
        named = f"place {place}, {_said(group)}"
        if total is None:
            yield self._finding("phantom", coordinate, f"{named}: no raw record belongs there")
        elif count is None:
            what = f"{named}: {ranking.counts} is null, and {total.records} raw records belong there"
            yield self._finding("changed", coordinate, what)
        elif count != total.records:
            what = f"{named}: {ranking.counts} is {count}, and {total.records} raw records belong there"
            yield self._finding("lost" if count < total.records else "doubled", coordinate, what)
        elif ranking.mean is not None and event[ranking.mean.name] != total.mean:
            what = f"{named}: {ranking.mean.name} is {event[ranking.mean.name]}, and the mean is {total.mean}"
            yield self._finding("changed", coordinate, what)
        elif where.get(group) != place:
            own = f"its place is {where[group]}" if group in where else f"it is not among the first {self._places}"
            yield self._finding("out of order", coordinate, f"{named}: {own}")

    def _ranked(self, totals: Mapping[Group, Total]) -> list[Group]:
        ranking, sign = self._ranking, -1 if self._ranking.first == "highest" else 1

        def order(group: Group) -> tuple[Any, ...]:
            total = totals[group]
            value = total.records if ranking.mean is None else total.mean
            is_last = value is None or total.records < ranking.at_least
            return is_last, 0 if is_last or value is None else sign * value, tuple(map(_ordered, group))

        return sorted(totals, key=order)

    def _finding(self, kind: Kind, coordinate: str, detail: str) -> Finding:
        return Finding(kind, self.hop, self._place, coordinate, detail)


def _ordered(value: Any) -> tuple[bool, Any]:
    """As Spark orders: null first, texts by their bytes."""
    if value is None:
        return False, 0
    return True, value.encode() if isinstance(value, str) else value


def _said(group: Group) -> str:
    return "/".join(map(str, group))
