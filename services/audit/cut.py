"""`Cut`: up to which record of each topic an audit looks, and who must have come so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

from services.audit.errors import CouldNotAudit
from services.audit.records.window import Span, Window
from services.audit.sources.broker import Broker
from services.audit.state import Audited, Paired, Ranked, State

DAY_MS = 86_400_000

_LOOK_SECONDS = 0.2
_OPEN_SECONDS = 10.0
"""Transactions of ours end sooner, but for those of a producer that was killed."""
_SILENT_SECONDS = 5.0
"""Who waits longer is told for what."""


class Cut:
    """The windows of topics, each taken when it is first asked for: first the raw topics', then of what derives from them."""

    def __init__(self, broker: Broker, since: State | None, wait_seconds: float, say: Callable[[str], None]) -> None:
        """`since`: the last clean audit's state; None begins at the first records. `wait_seconds`: how long each of those
        that follow may take to come so far; `say` takes progress.
        """
        self._say = say
        self._broker, self._since, self._wait_seconds = broker, since, wait_seconds
        self._ids: dict[str, str] = {}
        self._windows: dict[str, Window] = {}
        now = datetime.now(UTC)
        self.at = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.at_ms = round(now.timestamp() * 1000)

    def window(self, topic: str) -> Window:
        """The topic's. Raises CouldNotAudit if there is no such topic, or it was made anew, or cut, since the last clean audit."""
        if topic not in self._windows:
            topic_id = self._broker.topic_id(topic)
            if topic_id is None:
                raise CouldNotAudit(f"there is no topic {topic}: `headrace topics create` makes the contracts' topics")
            self._ids[topic] = topic_id
            before = self._since.topics.get(topic) if self._since is not None else None
            if before is not None and before.topic_id != topic_id:
                raise CouldNotAudit(f"{topic} was made anew since the last clean audit: run with --full")
            starts, ends = self._broker.starts(topic), self._ends(topic)
            spans = {}
            for partition, low in sorted(starts.items()):
                audited = before.ends.get(partition, 0) if before is not None else 0
                if audited > ends[partition]:
                    raise CouldNotAudit(
                        f"{topic}/{partition} ended at {audited} at the last clean audit, and ends at {ends[partition]}: brokers have lost its last "
                        "records, and others may lie in their places: run with --full"
                    )
                reread = before.resume.get(partition, audited) if before is not None else 0
                spans[partition] = Span(low, audited, ends[partition], reread)
            self._windows[topic] = Window(topic, spans)
        return self._windows[topic]

    def _ends(self, topic: str) -> dict[int, int]:
        """Of what readers of committed records get, when those get all that was there at the call."""
        there, began = self._broker.ends(topic, stable=False), time.monotonic()
        patience = max(self._wait_seconds, _OPEN_SECONDS)
        while True:
            ends = self._broker.ends(topic)
            held = [partition for partition, end in there.items() if ends.get(partition, 0) < end]
            if not held:
                return ends
            if time.monotonic() - began > patience:
                where = f"--topic {topic} --partition {held[0]} --start-offset {ends[held[0]]}"
                raise CouldNotAudit(
                    f"{topic}/{held[0]}: a transaction that began at offset {ends[held[0]]} has been open for over {patience:.0f} s, and "
                    "nobody who reads committed records gets what lies behind it. End its producer; if that is gone, "
                    f"`kafka-transactions.sh abort {where}` ends it"
                )
            time.sleep(_LOOK_SECONDS)

    def ends_behind(self, made: Iterable[str], of: Iterable[str]) -> dict[str, dict[int, int]]:
        """Take the cuts of topics that are made of others, and then how far those go: what is made has nothing of beyond."""
        for topic in made:
            self.window(topic)
        return {topic: self._broker.ends(topic) for topic in sorted(set(of))}

    def until_reached(
        self, who: str, topic: str, needed: Mapping[int, int], taken: Callable[[], Mapping[int, int]]
    ) -> None:
        """Wait until `taken` are at least the `needed` offsets. Only to wait: what is there is judged by the records.

        Raises CouldNotAudit, saying who is behind, and how far.
        """
        began, said = time.monotonic(), False
        while True:
            found = taken()
            behind = {p: offset for p, offset in needed.items() if found.get(p, 0) < offset}
            if not behind:
                return
            where = ", ".join(
                f"{topic}/{p} at offset {found.get(p, 'none')} of {offset}" for p, offset in behind.items()
            )
            waited = time.monotonic() - began
            if not said and waited > _SILENT_SECONDS:
                self._say(f"waiting up to {self._wait_seconds:g} s for {who}: {where}")
                said = True
            if waited > self._wait_seconds:
                raise CouldNotAudit(
                    f"{who} has not reached the cut after {self._wait_seconds:g} s: {where}. Is it running? "
                    "--wait SECONDS waits longer, --hop leaves it out"
                )
            time.sleep(_LOOK_SECONDS)

    def state(
        self,
        resume: Mapping[str, dict[int, int]],
        rows: Mapping[str, int],
        newest: Mapping[str, int],
        runs: Mapping[str, str],
        pairs: Mapping[str, Paired],
        rankings: Mapping[str, Ranked],
    ) -> State:
        """What the next audit begins with; `resume`: for topics with records ahead of the cut, where those begin."""
        return State(
            at=self.at,
            topics={
                topic: Audited(
                    topic_id=self._ids[topic],
                    ends={partition: span.end for partition, span in window.spans.items()},
                    resume=resume.get(topic, {}),
                )
                for topic, window in self._windows.items()
            },
            rows=dict(rows),
            newest=dict(newest),
            runs=dict(runs),
            pairs=dict(pairs),
            rankings=dict(rankings),
        )
