"""The hop from a topic to its alerts: those that the rules ask for, and no others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import ValidationError

from contracts.codec import Codec
from contracts.errors import DecodeError
from contracts.events import AlertRaised
from contracts.registry import Registry
from contracts.settings import RegistrySettings
from services.audit.consume import consume
from services.audit.expect import Expected
from services.audit.finding import Finding, Kind, Tally
from services.audit.place import code, coordinate, parsed_one, partition_of
from services.audit.records import Records
from services.audit.window import Where, Window


@dataclass(frozen=True, slots=True)
class Raised:
    """A record of the alerts' topic; `alert` is None if it can't be decoded."""

    at: int
    alert: AlertRaised | None


def read_alerts(
    kafka: Mapping[str, str], registry: RegistrySettings, topic: str, partition: int, start: int, end: int
) -> list[Raised]:
    """The alerts of one partition. Raises CouldNotAudit, RegistryUnavailable."""
    raised = []
    with Registry(registry) as client:
        codec = Codec(client.by_id)
        for batch in consume(kafka, topic, partition, start, end):
            for message in batch:
                body = message.value()
                alert = None
                try:
                    alert = AlertRaised.model_validate(codec.decode(body if isinstance(body, bytes) else b""))
                except (DecodeError, ValidationError):
                    pass  # a record without alert, which the audit reports
                raised.append(Raised(code(partition, message.offset() or 0), alert))
    return raised


class Alarm:
    """Compares one topic's window with the alerts of its records. Pure."""

    def __init__(
        self,
        window: Window,
        raw: Window,
        records: Sequence[Records],
        raised: Sequence[Raised],
        versions: Mapping[str, str],
        latest: Mapping[int, int],
    ) -> None:
        """`raw` is the window of the topic that coordinates are of (of a raw topic its own), `latest` that topic's ends now;
        `raised` the alerts of this topic's records; `versions` the rules' present ones by name.
        """
        self.hop = f"{window.topic} → alerts"
        self._window, self._raw, self._raised, self._versions, self._latest = window, raw, raised, versions, latest
        self._expected: dict[str, list[Expected]] = defaultdict(list)
        self._at_of: dict[int, int] = {}
        self._before: set[int] = set()
        self._unevaluable: list[int] = []
        self.tallies = {partition: Tally(self.hop, f"{window.topic}/{partition}") for partition in window.spans}
        for part in records:
            self._take(part)
        self.ahead: list[int] = []
        """Places of alerts that belong to records after the cut."""

    def findings(self, dead: set[int]) -> Iterator[Finding]:
        """What is wrong; the tallies and `ahead` are full afterwards. `dead`: places of records that alerting set aside."""
        found: dict[str, list[Raised]] = defaultdict(list)
        old: dict[tuple[str, int], int] = {}
        for raised in self._raised:
            alert = raised.alert
            assert alert is not None
            source = parsed_one(self._raw.topic, alert.coordinate)
            verdict = self._judge(raised, source)
            if verdict is not None:
                yield verdict
            at = self._at_of.get(source)
            if at is None:
                continue
            if self._versions.get(alert.rule) == alert.rule_version:
                found[str(alert.alert_id)].append(raised)
                if str(alert.alert_id) not in self._expected:
                    yield self._finding(
                        "phantom", at, f"alert {alert.alert_id} of {alert.rule}, which doesn't match it"
                    )
            else:
                self._note(at, "alerts of other rule versions than the file's, not recomputed")
                rule = (alert.rule, partition_of(at))
                old[rule] = max(old.get(rule, -1), at)
        yield from self._compare(found, old, dead)
        for at in self._unevaluable:
            if at not in dead:
                yield self._finding(
                    "lost", at, "no rule can be asked about it, and it is not among alerting's dead letters"
                )

    def _take(self, part: Records) -> None:
        inside = self._window.where(part.at) == Where.INSIDE
        self.tallies[part.partition].records = int(inside.sum())
        self.tallies[part.partition].notes.update(self._window.notes(part.partition))
        self._before.update(part.source[~inside].tolist())
        places = dict(zip(part.source[inside].tolist(), part.at[inside].tolist(), strict=True))
        self._at_of.update(places)
        inside_places = set(part.at[inside].tolist())
        self._unevaluable += [at for at in part.unevaluable if at in inside_places]
        for expected in part.expected:
            if expected.at in inside_places:
                self._expected[str(expected.alert.alert_id)].append(expected)

    def _judge(self, raised: Raised, source: int) -> Finding | None:
        """What is wrong with an alert whose record is not inside the window; None if it is, or nothing is wrong."""
        if source in self._at_of or source in self._before:
            return None
        assert raised.alert is not None
        where = self._raw.where(np.array([source]), self._latest)[0]
        if where == Where.AHEAD:
            self.ahead.append(raised.at)
        elif where in (Where.INSIDE, Where.NOWHERE):
            return Finding(
                "phantom",
                self.hop,
                self._window.topic,
                raised.alert.coordinate,
                f"alert {raised.alert.alert_id} of {raised.alert.rule}, but there is no such record",
            )
        else:
            text = "of records that are deleted by now" if where == Where.GONE else "of records audited before"
            partition = (
                next(iter(self.tallies), None) if partition_of(source) not in self.tallies else partition_of(source)
            )
            if partition is not None:
                self.tallies[partition].notes[f"alerts {text}, not compared"] += 1
        return None

    def _compare(
        self, found: Mapping[str, list[Raised]], old: Mapping[tuple[str, int], int], dead: set[int]
    ) -> Iterator[Finding]:
        for alert_id, expected in self._expected.items():
            at, rule = expected[0].at, expected[0].alert.rule
            self._note(at, "alerts")
            raised = found.get(alert_id, [])
            if len(raised) > 1:
                self._note(at, "alerts raised again with the same id", len(raised) - 1)
            # A record and its repairs raise one alert, with the values of any of them.
            if any(each.alert not in [one.alert for one in expected] for each in raised):
                yield self._finding("changed", at, f"alert {alert_id} of {rule} says something else than the rule does")
            if not raised and at in dead:
                self._note(at, "dead letters")
            elif not raised and at <= old.get((rule, partition_of(at)), -1):
                self._note(at, "records before a rule took its present form, not asked about it")
            elif not raised:
                yield self._finding("lost", at, f"no alert {alert_id} of {rule}")

    def _note(self, at: int, text: str, count: int = 1) -> None:
        self.tallies[partition_of(at)].notes[text] += count

    def _finding(self, kind: Kind, at: int, detail: str) -> Finding:
        return Finding(
            kind, self.hop, f"{self._window.topic}/{partition_of(at)}", coordinate(self._window.topic, at), detail
        )


def by_topic(raised: Sequence[Raised]) -> dict[str, list[Raised]]:
    """The alerts by the topic of their records; those that can't be decoded left out."""
    found: dict[str, list[Raised]] = defaultdict(list)
    for each in raised:
        if each.alert is not None:
            found[each.alert.topic].append(each)
    return found


def undecodable(raised: Sequence[Raised], topic: str) -> Iterator[Finding]:
    """Records of the alerts' topic that are none."""
    for each in raised:
        if each.alert is None:
            named = coordinate(topic, each.at)
            yield Finding(
                "phantom", "alerts", f"{topic}/{partition_of(each.at)}", named, "no alert: it can't be decoded"
            )
