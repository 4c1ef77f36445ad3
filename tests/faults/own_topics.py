"""The end of a campaign: odd records in the topics where Headrace alone should write.

The audit has to name each of them, so no later audit would be clean: nothing comes after this.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping

from contracts import topics
from contracts.definitions.catalog import load_catalog
from spark.runtime.mode import Mode
from tests.faults.kinds.records import IDS, MORE_MEMORY, send_odd
from tests.faults.refused import unexpected
from tests.faults.stage.load import ODD_SHARES, TABLE
from tests.faults.stage.positions import TARGET
from tests.faults.stage.stage import Stage

_ONE_BY_ONE = {TARGET, topics.ALERTS_RAISED.name}
"""Topics whose records the audit compares with those that they come of; of the others it counts what it can't read."""
_SECONDS = 300.0
_PLACE = re.compile(r"[\w.-]+/\d+/\d+")


def odd_records_in_own_topics(stage: Stage, seed: int, count: int) -> tuple[int, list[str]]:
    """Send `count` records to each topic of this stage that `poison_records` leaves out. How many the brokers took, and all that is wrong, in words.

    The load must have ended.
    """
    usual, supervised = dict(stage.peaks), len(stage.supervised)
    sent: dict[str, set[str]] = {}
    for topic, contract in load_catalog().topics.items():
        # Of one that no pipeline here derives, the audit could only say that the pipeline does not run.
        is_made_here = contract.derivation is None or not set(stage.pipelines).isdisjoint(contract.producers)
        if topic not in ODD_SHARES and is_made_here:
            sent[topic], _ = send_odd(stage, topic, count, random.Random(f"{seed}/{topic}"))
    ends = stage.positions.broker.ends(TARGET)
    stage.wait("alerting to have read them", lambda: stage.positions.reached(ends, "alerting", TARGET), _SECONDS)
    stage.wait("lake to have read them", lambda: stage.positions.has_landed(TABLE, TARGET, ends), _SECONDS)
    trouble = _audited(stage, sent)
    trouble += stage.supervised[supervised:]
    for name in ("lake", "alerting"):
        if stage.peaks[name] > MORE_MEMORY * usual.get(name, stage.peaks[name]):
            trouble.append(f"{name} took {stage.peaks[name]:,} bytes, where {usual[name]:,} are usual")
    return sum(map(len, sent.values())), trouble


def _audited(stage: Stage, sent: Mapping[str, set[str]]) -> list[str]:
    """Whether the audit names what was sent, and nothing else."""
    options = ["--at-least-once"] if stage.mode is Mode.REAL_TIME else []
    done = stage.audit("--json", "--full", "--wait", "120", *options)
    if done.returncode not in (0, 1):
        return [f"audit: no verdict: {done.stderr.strip()[-500:]}"]
    # A record that claims to come of one that is there, doubles what came of it.
    places, named = {each.decode() for each in IDS}.union(*sent.values()), set[str]()
    trouble = []
    for finding in unexpected(stage, json.loads(done.stdout)["findings"]):
        told = {*_PLACE.findall(finding)}
        named |= told
        if not told & places:
            trouble.append(finding)
    unnamed = sorted(set().union(*(sent[topic] for topic in _ONE_BY_ONE)) - named)
    return trouble + [f"the audit does not name {place}" for place in unnamed]
