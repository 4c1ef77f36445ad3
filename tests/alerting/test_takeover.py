"""`rules_at`: which rules a record was evaluated with, from the events alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from contracts.events import RulesActivated
from services.alerting.takeover import rules_at
from tests.alerting.examples import AT, a_rule

TOPIC = "weather.observed.v1"


def an_activation(from_offset: int, version: str, *, topic: str = TOPIC, partition: int = 0) -> RulesActivated:
    """An event whose one rule is only a name."""
    return RulesActivated(
        topic=topic,
        partition=partition,
        from_offset=from_offset,
        activated_at=AT,
        rules_version=version,
        rules={version: "{}"},
    )


@pytest.mark.parametrize(
    ("offset", "version"), [(4, None), (5, "old"), (9, "old"), (10, "new"), (11, "new"), (10_000, "new")]
)
def test_rules_apply_from_their_offset_to_the_next(offset: int, version: str | None) -> None:
    events = [an_activation(5, "old"), an_activation(10, "new")]
    assert list(rules_at(events, TOPIC, 0, offset)) == ([] if version is None else [version])


def test_an_owner_that_began_earlier_than_the_one_before_it_announced_overrules_it() -> None:
    events = [an_activation(0, "old"), an_activation(100, "never used"), an_activation(90, "new")]
    assert [list(rules_at(events, TOPIC, 0, offset)) for offset in (89, 95, 120)] == [["old"], ["new"], ["new"]]


def test_other_partitions_and_topics_do_not_count() -> None:
    events = [
        an_activation(0, "mine"),
        an_activation(1, "partition", partition=1),
        an_activation(1, "x", topic="a.b.v1"),
    ]
    assert list(rules_at(events, TOPIC, 0, 7)) == ["mine"]


def test_the_example_names_its_rule_by_the_hash_of_its_content() -> None:
    path = Path("contracts/examples/rules.activated.v1/strong_gusts.json")
    [(version, text)] = json.loads(path.read_text(encoding="utf-8"))["rules"].items()
    content = json.loads(text)
    del content["description"]
    assert hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12] == version
    assert a_rule(**json.loads(text)).version == version
