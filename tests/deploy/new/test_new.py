"""`headrace new`, in a copy of the tree: what it writes keeps every rule, and runs."""

from __future__ import annotations

import subprocess
import sys
import uuid

import pytest
import yaml

from contracts.definitions.catalog import load_catalog
from contracts.definitions.pipelines import pipeline_files
from deploy.local.processes.deployable import deployables
from deploy.local.servers.stack import LocalStack
from services.alerting.settings import AlertingSettings
from tests.alerting.worker import wait_for
from tests.deploy.clone import Clone
from tests.deploy.producers import PRODUCERS

CATALOG = load_catalog()
OURS = [each for each in CATALOG.topics.values() if set(each.producers) & {*PRODUCERS, *pipeline_files()}]
RAW = next(each.name for each in OURS if each.derived_from is None)
DERIVED = next(each.name for each in OURS if each.derived_from is not None)
UNREAD = next(each.name for each in OURS if "alerting" not in each.consumers)
RULE: dict[str, str] = yaml.safe_load(AlertingSettings().rules_file.read_text())["rules"][0]
DIMENSION = next(iter(CATALOG.dimensions))


def test_one_of_each_kind_keeps_every_rule(clone: Clone) -> None:
    clone.headrace("new", "event", "berths.assigned.v1", "--owner", "berth-operations")
    clone.headrace("contracts", "generate")
    clone.headrace("new", "service", "berths", "--topic", "berths.assigned.v1")
    for kind, records in (
        ("known", "some"),
        ("all", "each"),
        ("twice", "many"),
        ("once", "distinct"),
        ("counted", "sequence"),
        ("ranked", "ranking"),
    ):
        target = f"berths.assigned.{kind}.v1"
        said = clone.headrace(
            *("new", "pipeline", f"berths_{kind}", "--records", records),
            *("--reads", "berths.assigned.v1", "--writes", target),
        )
        assert f"./headrace up --pipelines {','.join(deployables().pipelines)},berths_{kind} runs it" in said
    clone.headrace(
        *("new", "pipeline", "berths_in_sql", "--sql", "--records", "some"),
        *("--reads", "berths.assigned.v1", "--writes", "berths.assigned.selected.v1"),
    )
    clone.headrace(
        *("new", "pipeline", "berths_ranked_in_sql", "--sql", "--records", "ranking"),
        *("--reads", "berths.assigned.v1", "--writes", "berths.assigned.rankedinsql.v1"),
    )
    clone.headrace("new", "event", "berths.freed.v1", "--producer", "berths", "--owner", "berth-operations")
    for name, more in (("berths_pairs", ()), ("berths_pairs_in_sql", ("--sql",))):
        clone.headrace(
            *("new", "pipeline", name, *more, "--records", "join", "--reads", "berths.assigned.v1"),
            *("--joined-with", "berths.freed.v1", "--writes", f"berths.assigned.{name.replace('_', '')}.v1"),
        )
    clone.headrace(
        *("new", "pipeline", "berths_counts", "--records", "aggregate", "--reads", "berths.assigned.v1"),
        *("--united-with", "berths.freed.v1", "--writes", "berths.assigned.counts.v1"),
    )
    clone.headrace("new", "dimension", "stands")
    clone.headrace("contracts", "generate")
    topic = clone.root / "contracts" / "topics" / "berths.assigned.v1.yaml"
    readers = "berths_known, berths_all, berths_twice, berths_once, berths_counted, berths_ranked, berths_in_sql, berths_ranked_in_sql, berths_pairs, berths_pairs_in_sql, berths_counts"
    topic.write_text(topic.read_text().replace(f"[{readers}]", f"[{readers}, alerting]"))
    clone.headrace("new", "rule", "many_berths", "--topic", "berths.assigned.v1")
    clone.headrace("contracts", "docs")
    assert (
        clone.headrace("contracts", "check")
        == f"{len(CATALOG.topics) + 13} topics and {len(CATALOG.dimensions) + 1} dimensions keep every rule\n"
    )
    assert "1 about berths.assigned.v1" in clone.headrace("rules", "check")
    assert {*readers.split(", ")} <= set(clone.headrace("pipelines").split())
    linted = clone.run("-m", "ruff", "check", "services/berths", "spark/pipelines")
    assert linted.returncode == 0, linted.stdout
    formatted = clone.run("-m", "ruff", "format", "--check", "services/berths", "spark/pipelines")
    assert formatted.returncode == 0, formatted.stdout
    listed = yaml.safe_load((clone.root / "deploy" / "deployables.yaml").read_text())["deployables"]
    assert listed[-1]["name"] == "berths"
    assert len({each["port"] for each in listed}) == len(listed)


def test_nothing_is_overwritten(clone: Clone) -> None:
    before = {path: path.read_bytes() for path in clone.root.rglob("*.yaml")}
    said = clone.refusal("new", "event", RAW)
    assert f"contracts/schemas/{RAW}/1.avsc is there already; nothing was written" in said
    said = clone.refusal("new", "dimension", DIMENSION)
    assert f"contracts/dimensions/{DIMENSION}.yaml is there already; nothing was written" in said
    (clone.root / "contracts" / "examples" / "berths.shut.v1").touch()
    assert "nothing was written" in clone.refusal("new", "event", "berths.shut.v1")
    assert not (clone.root / "contracts" / "topics" / "berths.shut.v1.yaml").exists()
    filters = clone.root / "services" / "audit" / "filters.yaml"
    filters.write_text("{}\n")
    target = ("--reads", RAW, "--writes", RAW.replace(".v1", ".wet.v1"), "--records", "some")
    assert "filters.yaml has no place for an entry more; edit it by hand" in clone.refusal(
        "new", "pipeline", "wet", *target
    )
    before[filters] = b"{}\n"
    assert {path: path.read_bytes() for path in clone.root.rglob("*.yaml")} == before


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["event", "Gates"], "'Gates': it is DOMAIN.PAST_TENSE.v1"),
        (["event", "berths.assigned.v1", "--producer", "A-B"], "'A-B': it is a name in Python"),
        (["event", "alert.raised.v1"], "the events of alerts.raised.v1 are called AlertRaised already"),
        (["event", "lake.filled.v1"], "'lake': a service, a pipeline or a command has this name"),
        (["service", "live", "--topic", RAW], "'live': a service, a pipeline or a command"),
        (["pipeline", "audit", "--reads", RAW, "--writes", "a.sent.v1"], "'audit': a service"),
        (["event", "berths.assigned.v1", "--owner", "../x"], "'../x': lower case"),
        (["service", "class", "--topic", RAW], "'class': it is a name in Python"),
        (["service", "berths", "--topic", RAW], "name berths among its producers"),
        (["service", "berths", "--topic", DERIVED], "is derived by a pipeline"),
        (["dimension", "../../x"], "'../../x': lower case"),
        (["dimension", "on"], "'on': lower case"),
        (["event", "berths.assigned.v1", "--owner", "no"], "'no': lower case"),
        (["event", "berths.assigned.v1", "--producer", "../contracts"], "'../contracts': it is a name in Python"),
        (["pipeline", "p", "--reads", "nope.a.v1", "--writes", "a.b.v1"], "no contract for topic 'nope.a.v1'"),
        (["pipeline", "p", "--reads", DERIVED, "--writes", "a.b.v1"], "is derived itself"),
        (["pipeline", "p", "--reads", RAW, "--writes", "a.b.v1", "--records", "distinct", "--sql"], "leave out --sql"),
        (["pipeline", "p", "--reads", RAW, "--writes", "a.b.v1", "--records", "sequence", "--sql"], "leave out --sql"),
        (["pipeline", "p", "--reads", RAW, "--writes", "a.b.v1", "--records", "join"], "--joined-with TOPIC belong"),
        (["pipeline", "p", "--reads", RAW, "--writes", "a.b.v1", "--joined-with", RAW], "--joined-with TOPIC belong"),
        (
            ["pipeline", "p", "--reads", RAW, "--writes", "a.b.v1", "--records", "join", "--joined-with", RAW],
            "two topics are joined",
        ),
        (["pipeline", "p", "--reads", RAW, "--writes", "a.b.v1", "--united-with", UNREAD], "to --records aggregate"),
        (
            ["pipeline", "p", "--reads", RAW, "--writes", "a.b.v1", "--records", "aggregate", "--united-with", RAW],
            "two topics are united",
        ),
        (
            ["pipeline", "p", "--reads", RAW, "--writes", "a.b.v1", "--records", "aggregate", "--united-with", UNREAD]
            + ["--sql"],
            "no SELECT unites two topics",
        ),
        (["rule", "late", "--topic", UNREAD], "nothing was written, for alerting would refuse it"),
        (["rule", RULE["name"], "--topic", RULE["topic"]], "services/alerting/rules.yaml:"),
    ],
)
def test_nonsense_is_refused_with_the_cure(arguments: list[str], why: str, clone: Clone) -> None:
    assert why in clone.refusal("new", *arguments)


def test_a_new_service_publishes(clone: Clone, stack: LocalStack) -> None:
    name = f"t{uuid.uuid4().hex[:8]}"
    topic, env = f"{name}.assigned.v1", stack.settings_env()
    clone.headrace("new", "event", topic)
    clone.headrace("contracts", "generate")
    clone.headrace("new", "service", name, "--topic", topic)
    clone.headrace("contracts", "check")
    clone.headrace("topics", "create", env=env)
    clone.headrace("contracts", "register", env=env)
    service = subprocess.Popen([sys.executable, "-m", f"services.{name}"], cwd=clone.root, env=clone.env(env))
    try:
        read = ("tail", topic, "--from", "earliest", "--no-follow", "--json")
        wait_for(lambda: f"{name}/" in clone.headrace(*read, env=env), "the service's event")
    finally:
        service.terminate()
        assert service.wait(30) == 0
