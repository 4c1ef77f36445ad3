"""`headrace plan` beside a commit: what it compares, and what it prints."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from contracts import topics
from deploy import plan as planned
from deploy.errors import DeployError
from tests.deploy.clone import Clone

RULES = topics.RULES_ACTIVATED.name


@pytest.fixture
def committed(clone: Clone) -> Clone:
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org")
    for command in (["init", "-q"], ["add", "contracts"], ["commit", "-q", "-m", "before"]):
        subprocess.run([*git, *command], cwd=clone.root, check=True)
    return clone


def test_it_tells_what_changed_since_the_commit_and_for_whom(committed: Clone) -> None:
    assert committed.headrace("plan") == "the contracts say what they say in HEAD\n"
    committed.headrace("new", "event", "gates.assigned.v1")
    topic = committed.root / "contracts" / "topics" / f"{RULES}.yaml"
    topic.write_text(topic.read_text().replace("partitions: 1", "partitions: 3"))
    said = committed.headrace("plan").splitlines()
    assert said[:2] == ["gates.assigned.v1 (my-team)", "  new       topic, 3 fields, 2 partitions (for gates)"]
    assert said[3].startswith("  breaking  partitions: 1 → 3: records of one key may come to another partition")
    assert said[-1] == "2 contracts: 1 breaking, 1 new"
    told = json.loads(committed.headrace("plan", "--json"))
    assert [each["weight"] for each in told["changes"]] == ["new", "breaking"]
    rows = committed.headrace("plan", "--markdown").splitlines()[6:]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| **breaking**", f"`{RULES}`"],
        ["| new", "`gates.assigned.v1`"],
    ]
    assert committed.run("-c", "from deploy.cli import main; main()", "plan", "--exit-code").returncode == 1


def test_a_broken_file_is_named(committed: Clone) -> None:
    topic = committed.root / "contracts" / "topics" / f"{RULES}.yaml"
    topic.write_text(topic.read_text().replace("partitions: 1", "partitions: many"))
    assert f"contracts/topics/{RULES}.yaml:" in committed.refusal("plan")


@pytest.mark.parametrize("revision", ["nope", "--output=here", ""])
def test_a_revision_that_git_does_not_know_is_told(revision: str) -> None:
    with pytest.raises(DeployError, match="Name a commit, a branch or a tag"):
        planned.plan(revision)
    assert not (Path.cwd() / "here").exists()
