"""`Campaign`: faults one after another on one stage, each followed by recovery, the ledger, the oracle and the audit."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from deploy.local.processes.deployable import ROOT
from spark.runtime.mode import Mode
from tests.faults.fault import Fault, Shown
from tests.faults.own_topics import odd_records_in_own_topics
from tests.faults.refused import unexpected
from tests.faults.stage.stage import Stage
from tests.faults.witness import Found, Witness

AFTERWARDS = "afterwards"
OWN_TOPICS = "own_topics"


def _nothing(stage: Stage, chance: random.Random) -> Shown:
    return Shown(stage.acknowledged(), "events acknowledged in all")


_AFTER_ALL = Fault(AFTERWARDS, "No fault: all records, rows and alerts once more from the beginning.", _nothing, 120)
_WARM_UP_SECONDS = 3.0
"""Load between two faults, so that each meets a system at work."""


@dataclass(frozen=True)
class Outcome:
    """What became of one fault. `recovered_seconds`: from its end until nothing that was sent before waited any more; None where the next one
    struck at once.
    """

    fault: str
    sentence: str
    shown: str
    events: int
    sent_again: int
    written_again: int
    restarts: int
    lost: int
    doubled: int
    wrong: int
    lasted_seconds: float
    recovered_seconds: float | None
    peak_mb: dict[str, int]
    trouble: list[str] = field(default_factory=list)
    """Everything that is wrong, in words; none is a success."""
    commit: str = ""
    """That of the tree; empty where it is not known."""
    seed: int = 0
    """What the fault's chance comes of; the last one's of what follows all faults."""

    @property
    def passed(self) -> bool:
        """Nothing is wrong."""
        return not self.trouble


class Campaign:
    """Runs faults, each with a seed for its chance. What repeats is doubled where the stage's `live` runs in exactly-once mode, and noted elsewhere.

    `audits_each`: an audit follows each fault. Without, the one at the end, which looks at everything, tells no fault from another.
    """

    def __init__(self, stage: Stage, say: Callable[[str], None], *, audits_each: bool = True) -> None:
        exactly_once = stage.mode is Mode.EXACTLY_ONCE
        self._stage, self._say, self._seed = stage, say, 0
        self._witness = Witness(stage, exactly_once=exactly_once)
        self._audits_each = audits_each
        self._audited = () if exactly_once else ("--at-least-once",)
        asked = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        self._commit = asked.stdout.strip()

    def run(self, faults: Mapping[int, Sequence[Fault]], *, is_together: bool = False) -> Iterable[Outcome]:
        """The faults of each seed; each one's outcome as soon as it is there. A fault that fails does not end the campaign.

        `is_together`: those of a seed strike back to back, and only the last is followed by recovery, ledger, oracle and audit. What these
        find counts against each of them.
        """
        before = self._witness.look(240)
        if before.lost or before.doubled or before.wrong:
            raise AssertionError(f"something is wrong before any fault: {before}")
        for self._seed, chosen in faults.items():
            for faults_at_once in [chosen] if is_together else [[fault] for fault in chosen]:
                yield from self._run(faults_at_once)
        self._stage.end_load()
        yield from self._run([_AFTER_ALL], full=True)

    def judged(self, fault: Fault) -> Outcome:
        """One more fault, with its audit, after `run` is through."""
        (outcome,) = self._run([fault], is_audited=True)
        return outcome

    def end(self, count: int) -> Outcome:
        """Send `count` odd records to each topic where Headrace alone should write. The audit names them from then on: nothing comes after it."""
        taken, found = 0, list[str]()

        def send(stage: Stage, chance: random.Random) -> Shown:
            nonlocal taken, found
            taken, found = odd_records_in_own_topics(stage, self._seed, count)
            return Shown(taken, "odd records")

        sentence = "Odd records in the topics where Headrace alone should write."
        struck = self._strike(Fault(OWN_TOPICS, sentence, send, 0))
        trouble = [*struck.trouble, *found]
        outcome = replace(struck, events=taken, wrong=len(trouble), trouble=trouble)
        self._tell(outcome)
        return outcome

    def _run(self, faults: Sequence[Fault], *, full: bool = False, is_audited: bool = False) -> list[Outcome]:
        """Strike with each, and judge once."""
        supervised = len(self._stage.supervised)
        struck = [self._strike(fault) for fault in faults]
        seconds = max(fault.seconds for fault in faults)
        last, trouble = self._judged(struck[-1], seconds, supervised, full=full)
        if full or is_audited or self._audits_each:
            trouble += self._audit(*(["--full"] if full else []))
        outcomes = [replace(each, trouble=[*each.trouble, *trouble]) for each in (*struck[:-1], last)]
        for each in outcomes:
            self._tell(each)
        return outcomes

    def _strike(self, fault: Fault) -> Outcome:
        """What is known of a fault as soon as it has acted."""
        stage = self._stage
        self._say(f"seed {self._seed}, {fault.name}: {fault.sentence}")
        restarts = stage.restarts()
        time.sleep(_WARM_UP_SECONDS)
        stage.forgive()
        stage.peaks.clear()
        began, trouble = time.monotonic(), list[str]()
        shown = "not shown"
        try:
            proof = fault.act(stage, random.Random(f"{self._seed}/{fault.name}"))
            shown = str(proof)
            if not proof.times:
                trouble.append(f"the fault was not shown to act: {proof}")
        except Exception as error:  # noqa: BLE001  whatever it is, the others are still to run
            trouble.append(f"the fault itself failed: {_told(error)}")
        return Outcome(
            fault=fault.name,
            sentence=fault.sentence,
            shown=shown,
            events=0,
            sent_again=0,
            written_again=0,
            restarts=stage.restarts() - restarts,
            lost=0,
            doubled=0,
            wrong=0,
            lasted_seconds=round(time.monotonic() - began, 1),
            recovered_seconds=None,
            peak_mb=self._peaks_mb(),
            trouble=trouble,
            commit=self._commit,
            seed=self._seed,
        )

    def _judged(self, outcome: Outcome, seconds: float, supervised: int, *, full: bool) -> tuple[Outcome, list[str]]:
        """The outcome with what came of it after it was healed; and all that is wrong since the look before.

        `supervised`: how much the supervisor had said before the first fault.
        """
        stage, healed, found, trouble = self._stage, time.monotonic(), Found(), list[str]()
        restarts = stage.restarts()
        try:
            found = self._witness.look(seconds)
        except Exception as error:  # noqa: BLE001
            trouble += [f"no recovery: {type(error).__name__}: {error}", *stage.supervised[supervised:]]
        recovered = time.monotonic()
        if full:
            found += self._witness.look_at_everything()
        judged = replace(
            outcome,
            events=found.events,
            sent_again=found.sent_again,
            written_again=found.written_again,
            restarts=outcome.restarts + stage.restarts() - restarts,
            lost=len(found.lost),
            doubled=len(found.doubled),
            wrong=len(found.wrong),
            recovered_seconds=round(recovered - healed, 1),
            peak_mb=self._peaks_mb(),
        )
        return judged, [*trouble, *found.lost, *found.doubled, *found.wrong]

    def _peaks_mb(self) -> dict[str, int]:
        return {name: peak // 1_000_000 for name, peak in sorted(self._stage.peaks.items())}

    def _tell(self, outcome: Outcome) -> None:
        verdict = "passed" if outcome.passed else "FAILED"
        waited = outcome.recovered_seconds
        recovered = "" if waited is None else f"; {waited:.0f} s to recover"
        self._say(f"{outcome.fault}: {verdict}: {outcome.shown}{recovered}")
        for each in outcome.trouble[:5]:
            self._say(f"    {each[:400]}")

    def _audit(self, *options: str) -> list[str]:
        done = self._stage.audit("--json", "--wait", "60", *self._audited, *options)
        if done.returncode == 0:
            return []
        if done.returncode == 1:
            return unexpected(self._stage, json.loads(done.stdout)["findings"])
        return [f"audit: no verdict: {done.stderr.strip()[-500:]}"]


def _told(error: BaseException) -> str:
    """The exception in words, with those that it holds: of a group its own text says how many they are."""
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return "; ".join([f"{type(error).__name__}: {error}", *map(_told, inner)])


class Kept:
    """The outcomes of a seed, in a file that survives the campaign."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def outcomes(self) -> dict[str, Outcome]:
        """The last of each fault, by its name."""
        if not self._path.exists():
            return {}
        lines = self._path.read_text(encoding="utf-8").splitlines()
        return {each["fault"]: Outcome(**each) for each in map(json.loads, lines)}

    def add(self, outcome: Outcome) -> None:
        """Keep one more."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")
