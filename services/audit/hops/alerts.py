"""The hop from a topic to its alerts: those that the rules ask for, and no others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from contracts.errors import DecodeError
from contracts.events import AlertRaised
from contracts.records.codec import Codec
from contracts.servers.registry import Registry
from contracts.settings import RegistrySettings
from services.audit.records.expect import Expected
from services.audit.records.records import Records
from services.audit.records.rules_history import RulesHistory
from services.audit.records.window import Where, Window
from services.audit.sources.consume import consume
from services.audit.values.digest import Digests, identity
from services.audit.values.finding import Finding, Kind, Tally
from services.audit.values.place import Codes, code, concatenated, coordinate, parsed_parts, partition_of


@dataclass(frozen=True, slots=True)
class Raised:
    """A record of the alerts' topic; `alert` is None if it can't be decoded."""

    at: int
    alert: AlertRaised | None


def read_alerts(
    kafka: Mapping[str, str], registry: RegistrySettings, topic: str, schema: str, partition: int, start: int, end: int
) -> list[Raised]:
    """The alerts of one partition. Raises CouldNotAudit, RegistryUnavailable."""
    raised = []
    with Registry(registry) as client:
        codec = Codec(client.by_id, reader_schema=schema)
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
        history: RulesHistory,
        latest: Mapping[int, int],
        *,
        has_parts: bool = False,
        is_compacted: bool = False,
    ) -> None:
        """`raw` is the window of the topic that coordinates are of (of a raw topic its own), `latest` that topic's ends now;
        `raised` the alerts of this topic's records, of which `has_parts` may come several of one raw record. With `is_compacted` the topic
        keeps the newest record of each key only.
        """
        self._has_parts, self._is_compacted = has_parts, is_compacted
        self.hop = f"{window.topic} → alerts"
        self._window, self._raw, self._raised, self._latest = window, raw, raised, latest
        self._expected: dict[str, list[Expected]] = defaultdict(list)
        self._unevaluable: list[int] = []
        self.tallies = {partition: Tally(self.hop, f"{window.topic}/{partition}") for partition in window.spans}
        self._versions: dict[int, set[str]] = {}
        """Of partitions where nothing is recorded, the versions of the rules file."""
        for partition, tally in self.tallies.items():
            tally.notes.update(window.notes(partition))
            since = history.recorded_from(window.topic, partition)
            if since is None:
                self._versions[partition] = {use.rule.version for use in history.uses(window.topic, partition)}
            elif since > window.spans[partition].start:
                tally.notes["offsets before the first recorded rules, not asked about"] = (
                    min(since, window.spans[partition].end) - window.spans[partition].start
                )
        unasked = {
            partition: history.forgotten(window.topic, partition).union(
                *(part.unasked for part in records if part.partition == partition)
            )
            for partition in window.spans
        }
        self._unasked = frozenset[str]().union(*unasked.values())
        parts = [self._take(part) for part in records]
        at = concatenated([part[0] for part in parts], np.int64)
        ids, before = (concatenated([part[index] for part in parts], np.uint64) for index in (1, 2))
        order = np.argsort(ids, kind="stable")
        self._at, self._ids, self._before = at[order], ids[order], np.sort(before)
        for partition, versions in unasked.items():
            for version in versions:
                text = f"that rule version {version} is not asked about: today it is no rule, or its fields are gone"
                self.tallies[partition].notes[text] = self.tallies[partition].records
        self.ahead: list[int] = []
        """Places of alerts that belong to records after the cut."""

    def findings(self, dead: set[int], settled: set[int]) -> Iterator[Finding]:
        """What is wrong; the tallies and `ahead` are full afterwards. `dead`: places of records that alerting set aside;
        `settled`: of those whose dead letters were purged or sent back.
        """
        found: dict[str, list[Raised]] = defaultdict(list)
        alerts = [(raised, raised.alert) for raised in self._raised if raised.alert is not None]
        named = pa.array([alert.coordinate for _, alert in alerts], pa.string())
        sources, numbers = parsed_parts(self._raw.topic, named, parts=self._has_parts)
        ids = identity(sources, numbers)
        for (raised, alert), source, own_id in zip(alerts, sources.tolist(), ids, strict=True):
            verdict = self._judge(raised, source, own_id)
            if verdict is not None:
                yield verdict
            at = self._place_of(own_id)
            if at is None:
                continue
            if str(alert.alert_id) in self._expected:
                found[str(alert.alert_id)].append(raised)
            elif alert.rule_version in self._unasked:
                self._note(at, "alerts of rules that can't be asked any more, not recomputed")
            elif alert.rule_version not in self._versions.get(partition_of(at), {alert.rule_version}):
                self._note(at, "alerts of rule versions that are neither recorded nor in the file, not recomputed")
            else:
                # By its coordinate, which another record may claim as well.
                named = f"alert {alert.alert_id} of {alert.coordinate}"
                yield self._finding("phantom", at, f"{named}: no rule {alert.rule} in force there matches")
        yield from self._compare(found, dead, settled)
        for at in self._unevaluable:
            if at not in dead and at not in settled:
                yield self._finding(
                    "lost", at, "a rule gives no answer for it, and it is not among alerting's dead letters"
                )

    def _take(self, part: Records) -> tuple[Codes, Digests, Digests]:
        """Places of the records inside the window, and which part of which raw record they are; the same of those before."""
        inside = self._window.where(part.at) == Where.INSIDE
        tally = self.tallies[part.partition]
        tally.records += int(inside.sum())
        # Alerting reads no more of a record than its rules need, so it may not have noticed.
        tally.notes["records that can't be decoded, no alert expected"] += int((inside & ~part.readable).sum())
        first = int(part.at[inside][0]) if inside.any() else 0
        self._unevaluable += [at for at in part.unevaluable if at >= first and inside.any()]
        for expected in part.expected:
            if inside.any() and expected.at >= first:
                self._expected[str(expected.alert.alert_id)].append(expected)
        ids = identity(part.source, part.part)
        return part.at[inside], ids[inside], ids[~inside]

    def _judge(self, raised: Raised, source: int, own_id: np.uint64) -> Finding | None:
        """What is wrong with an alert whose record is not inside the window; None if it is, or nothing is wrong."""
        if self._place_of(own_id) is not None or _holds(self._before, own_id):
            return None
        assert raised.alert is not None
        where = self._raw.where(np.array([source]), self._latest)[0]
        if where == Where.AHEAD:
            self.ahead.append(raised.at)
        elif where == Where.NOWHERE or (where == Where.INSIDE and not self._is_compacted):
            return Finding(
                "phantom",
                self.hop,
                self._window.topic,
                raised.alert.coordinate,
                f"alert {raised.alert.alert_id} of {raised.alert.rule}, but there is no such record",
            )
        else:
            text = {
                Where.GONE: "of records that are deleted by now",
                Where.INSIDE: "of records that compaction may have removed",
            }.get(where, "of records audited before")
            partition = (
                next(iter(self.tallies), None) if partition_of(source) not in self.tallies else partition_of(source)
            )
            if partition is not None:
                self.tallies[partition].notes[f"alerts {text}, not compared"] += 1
        return None

    def _compare(self, found: Mapping[str, list[Raised]], dead: set[int], settled: set[int]) -> Iterator[Finding]:
        unevaluable = set(self._unevaluable)
        for alert_id, expected in self._expected.items():
            at, rule = expected[0].at, expected[0].alert.rule
            raised = found.get(alert_id, [])
            if raised:
                self._note(at, "alerts")
            if len(raised) > 1:
                self._note(at, "alerts raised again with the same id", len(raised) - 1)
            # A record and its repairs raise one alert, with the values of any of them.
            if any(each.alert not in [one.alert for one in expected] for each in raised):
                yield self._finding("changed", at, f"alert {alert_id} of {rule} says something else than the rule does")
            # What a redrive sent again comes with the same id, and is to be handled however the first one fared.
            owed = [each.at for each in expected if each.due and each.at not in settled]
            left = [place for place in owed if place not in dead or place not in unevaluable]
            if raised or not any(each.due for each in expected):
                continue
            if not left:
                self._note(at, "dead letters")
            elif left[0] in dead:
                text = "is a dead letter of alerting, though every rule gives an answer for it: redrive it"
                yield self._finding("set aside", left[0], f"no alert {alert_id} of {rule}: it {text}")
            else:
                yield self._finding("lost", left[0], f"no alert {alert_id} of {rule}")

    def _place_of(self, own_id: np.uint64) -> int | None:
        """The record inside the window that is this part of this raw one."""
        index = int(np.searchsorted(self._ids, own_id))
        return int(self._at[index]) if index < len(self._ids) and self._ids[index] == own_id else None

    def _note(self, at: int, text: str, count: int = 1) -> None:
        self.tallies[partition_of(at)].notes[text] += count

    def _finding(self, kind: Kind, at: int, detail: str) -> Finding:
        return Finding(
            kind, self.hop, f"{self._window.topic}/{partition_of(at)}", coordinate(self._window.topic, at), detail
        )


def _holds(values: Digests, value: np.uint64) -> bool:
    """Whether a sorted array has it."""
    index = int(np.searchsorted(values, value))
    return index < len(values) and bool(values[index] == value)


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
