"""A pipeline as it is deployed, which takes in a year of events and is killed three times on its way: `Passage`."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import yaml

from contracts.records.headers import headers_of
from services.audit.hops.hop import Hop
from services.audit.report import Report
from services.audit.settings import AuditSettings
from spark.derivation.derivation import is_stateful
from spark.pipeline import Pipeline
from spark.runtime.settings import SparkSettings
from spark.sources.checkpoint_offsets import CheckpointOffsets, checkpoint_folder
from tests.spark.auditor import FILES, Auditor
from tests.spark.examples import Topics
from tests.spark.live_query import events, wait_for
from tests.spark.queries.test_processes import Place, Running
from tests.spark.year.events import Arrangement, Event, Sender, Sent, half_months, in_order, taken_in, year_of

_DEPLOYED = "tests.spark.pipelines.deployed"
_RECORDS = 10_000
"""Of each topic in a batch: those of about ten days."""
_SECONDS = 600
_EVERY = 0.5
_SEED = 20261129
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Batch:
    """What Spark has put into a batch, and the watermarks: up to `late` its events are late, and what ends up to `over` is over behind it."""

    sent: list[Sent]
    late: datetime
    over: datetime


class Passage:
    """How it went; see `run`. Of a pipeline with a state `batches` are those that its checkpoint told of, for where they begin and end no oracle can
    know; that the watermarks follow from them is checked.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        settings: SparkSettings,
        topics: Topics,
        place: Place,
        folder: Path,
        arranged: Arrangement,
    ) -> None:
        self.settings, self.topics, self.arranged = settings, topics, arranged
        self._pipeline, self._place, self._folder = pipeline, place, folder
        self._senders = {name: Sender(topics, name) for name in pipeline.sources}
        self._target = topics.catalog.topic(pipeline.target)
        self._checkpoints = CheckpointOffsets(settings.s3, checkpoint_folder(pipeline.name, self._target.name))
        self._has_state = is_stateful(pipeline, topics.catalog)
        self._run = ""
        self.batches: list[Batch] = []

    @property
    def is_in_order(self) -> bool:
        """Whether nothing can be late."""
        return self.arranged is in_order

    @property
    def sent(self) -> list[Sent]:
        """All records, topic by topic."""
        return [each for sender in self._senders.values() for each in sender.sent]

    @property
    def over(self) -> datetime:
        """The last watermark: of all that ends up to here is told."""
        return self.batches[-1].over

    def run(self) -> None:
        """Send a quarter of the year, start the pipeline and kill it at a random moment, three times; then the last quarter, until all is taken in, and all over
        that can be.
        """
        chance, before = random.Random(_SEED), 0
        year = {name: half_months(*year_of(name, self.topics.catalog), self.arranged, chance) for name in self._senders}
        few = {"HEADRACE_LIVE__MAX_OFFSETS_PER_TRIGGER": str(_RECORDS)}
        for number in range(4):
            first, *others = [{name: year[name][6 * number + each] for name in year} for each in range(6)]
            self._send(first)
            running = self._place.start(self._pipeline.name, _DEPLOYED, **few)
            for each in others:
                if self._is_of_faster:
                    # Its batches take what is there, and in one batch nothing is late.
                    self._wait(running, f"all of {len(self.sent)} records", partial(self._has, len(self.sent)))
                self._send(each)
            count = len(self.sent)
            if number == 3:
                self._wait(running, "all records", self._is_through)
                os.killpg(running.process.pid, signal.SIGTERM)
                running.process.wait()
                break
            until, before = before + chance.uniform(0.2, 0.8) * (count - before), count
            self._wait(running, f"{until:.0f} records", partial(self._has, until))
            moment = time.monotonic() + chance.uniform(0, 4)
            self._wait(running, "the moment", partial(self._has, until, moment))
            running.kill()
        if self._late_after is not None:
            self._check_watermarks(self._late_after)

    def _send(self, events: Mapping[str, Sequence[Event]]) -> None:
        """By topic."""
        for name, sender in self._senders.items():
            sender.send(events[name])

    def divided(self, ends_at: Callable[[Event], datetime] | None = None) -> tuple[list[Sent], list[Sent]]:
        """The records that are in time, and those that are late, in the order of the batches. `ends_at` tells when what an event belongs to is over; otherwise an event's own
        time does.
        """
        kept: list[Sent] = []
        late: list[Sent] = []
        for batch in self.batches:
            for each in batch.sent:
                at = ends_at(each.event) if ends_at is not None else self._happened_at(each)
                (late if at <= batch.late else kept).append(each)
        return kept, late

    def by_id(self) -> dict[str, Event]:
        """The records of the target, each of which has an id of its own."""
        found = [(headers["ce_id"].decode(), event) for event, headers, _ in events(self.topics, self._pipeline.target)]
        by_id = dict(found)
        assert len(by_id) == len(found)
        return by_id

    def written(self) -> list[Event]:
        """The records of the target."""
        return [*self.by_id().values()]

    def check_late(self, late: list[Sent]) -> None:
        """Whether just these were set aside as late ones, each once: none if all came in order, else some."""
        letters = [dict(headers_of(each))["ce_id"] for each in self.topics.read(str(self._target.late_topic))]
        assert Counter(letters) == Counter(self.coordinate(each).encode() for each in late)
        assert bool(late) != self.is_in_order

    def coordinate(self, sent: Sent) -> str:
        """Of a record on the test's own topic."""
        return f"{self.topics.catalog.topic(sent.topic).name}/{sent.partition}/{sent.offset}"

    def audit(self, hop: Hop) -> Report:
        """What the audit says, which finds nothing wrong. It is told what it is shipped with of the target."""
        shipped, told = AuditSettings(), {}
        for name in FILES:
            entries = yaml.safe_load(getattr(shipped, name).read_text())
            told[name] = self._folder / f"shipped_{name}.yaml"
            told[name].write_text(
                yaml.safe_dump({key: entries[key] for key in entries if key == self._pipeline.target})
            )
        report = Auditor(self.settings, self.topics, self._folder, hop, **told)()
        assert report.findings == []
        return report

    def _wait(self, running: Running, what: str, holds: Callable[[], bool]) -> None:
        def goes_on() -> bool:
            assert running.process.poll() is None, running.lines()[-1][-1_000:]
            return holds()

        wait_for(what, goes_on, _SECONDS, every=_EVERY)

    def _has(self, count: float, moment: float = 0) -> bool:
        return self.progress() >= count and time.monotonic() >= moment

    def progress(self) -> int:
        """How many records it has come to: those that are planned in batches, or without a state taken in."""
        if self._has_state:
            self._look()
            return sum(len(batch.sent) for batch in self.batches)
        return taken_in(self._pipeline, self.settings, self.topics)

    def _is_through(self) -> bool:
        if self.progress() < len(self.sent):
            return False
        if not self._has_state:
            return True
        planned, committed = self._checkpoints.last(self._run)
        if planned != committed or planned != len(self.batches) - 1 or self._late_after is None:
            return planned == committed and self._late_after is None
        last = self._of_both(self._happened_at(sender.sent[-1]) for sender in self._senders.values())
        return self.over == last - self._late_after

    def _look(self) -> None:
        """At the batches that are planned by now: Spark forgets all but the last twenty."""
        if not self._run:
            self._run = next(iter(self._checkpoints.runs()), "")
        if not self._run:
            return
        planned, _ = self._checkpoints.last(self._run)
        names = {self.topics.catalog.topic(name).name: name for name in self._senders}
        for number in range(len(self.batches), -1 if planned is None else planned + 1):
            ranges, late = self._checkpoints.planned(self._run, number, list(names))
            sent = [
                self._senders[names[each.topic]].sent[2 * offset + each.partition]
                for each in ranges
                for offset in range(each.start, each.end)
            ]
            over = self._checkpoints.watermark_ms(self._run, number)
            self.batches.append(Batch(sent, _EPOCH + late * _MILLISECOND, _EPOCH + over * _MILLISECOND))

    def _check_watermarks(self, late_after: timedelta) -> None:
        """Each follows from the newest events of the batches before; that of two topics may be behind, for a start forgets which was that of which."""
        newest = dict.fromkeys(self._senders, _EPOCH + late_after)
        late = _EPOCH
        for batch in self.batches:
            wanted = self._of_both(newest.values()) - late_after
            assert batch.late == late
            assert batch.over == wanted or (len(newest) > 1 and late <= batch.over < wanted)
            late = batch.over
            for each in batch.sent:
                newest[each.topic] = max(newest[each.topic], self._happened_at(each))

    def _of_both(self, newest: Iterable[datetime]) -> datetime:
        """Of the newest events of two topics that of the one which is behind, or by the contract ahead."""
        return max(newest) if self._is_of_faster else min(newest)

    @property
    def _is_of_faster(self) -> bool:
        return self._target.derivation is not None and self._target.derivation.watermark_of == "faster"

    @property
    def _late_after(self) -> timedelta | None:
        """None where no record is late."""
        derivation = self._target.derivation
        minutes = None if derivation is None else derivation.late_after_minutes
        return None if minutes is None else timedelta(minutes=minutes)

    def _happened_at(self, sent: Sent) -> datetime:
        at: datetime = sent.event[self.topics.catalog.topic(sent.topic).occurred_at]
        return at
