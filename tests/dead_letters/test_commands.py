"""`headrace dlq` as somebody at a terminal sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from contracts.records.wire import FRAME_BYTES
from deploy.commands.dead_letters import dlq_app
from deploy.errors import DeployError
from deploy.local.client import client_settings
from deploy.local.servers.stack import LocalStack
from tests.dead_letters.place import Place
from tests.spark.examples import SCHEMA, a_dispatch, body, framed


@pytest.fixture
def shell(stack: LocalStack, place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The commands find the stack by the environment, and only this test's topic in the contracts."""
    for name, value in stack.settings_env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("contracts.definitions.catalog.load_catalog", lambda: place.catalog)
    # It is for a whole process: the tests that follow would log to this one's terminal.
    monkeypatch.setattr("contracts.observe.configure_logging", lambda *_, **__: None)
    return place


def run(*arguments: str, **how: Any) -> Result:
    return CliRunner().invoke(dlq_app, list(arguments), **how)


def test_letters_are_counted_listed_and_decoded_as_far_as_they_go(shell: Place) -> None:
    schema_id = shell.registry.register(shell.contract.subject, SCHEMA)
    cut = framed(schema_id, body(a_dispatch()))[: FRAME_BYTES + 40]
    shell.send_letters(cut, b'{"parcel": "\x1b[31mUA1"}', framed(4_000_000_000, b"x"))
    result = run("list")
    assert (result.exit_code, result.output.isprintable()) == (0, False)  # lines
    assert "\x1b" not in result.output
    heads, counts, *_ = result.output.splitlines()
    assert heads.split()[:4] == ["topic", "reason", "letters", "open"]
    assert counts.split()[:6] == [shell.dead_letter_topic, "Trial", "3", "3", "0", "0"]

    letters = json.loads(run("list", "--json", "--limit", "9").output)["letters"]
    unknown, text, broken = (letter["decoded"] for letter in letters)
    assert broken["fields"]["parcel_id"] == a_dispatch()["parcel_id"]
    assert "dispatched_at" not in broken["fields"]
    assert broken["problem"].startswith("Truncated: ")
    assert text["text"] is None  # an escape is no text
    assert "no schema with id 4000000000" in unknown["problem"]
    assert run("list", "--reason", "Other").output == "there are no such dead letters\n"


def test_a_letter_that_only_another_subjects_schema_reads_has_a_problem(shell: Place) -> None:
    own = shell.registry.register(shell.contract.subject, SCHEMA)
    other = json.dumps(json.loads(SCHEMA) | {"doc": "Of another subject."})
    others = shell.registry.register(f"trials.{uuid4().hex}.v1-value", other)
    shell.send_letters(framed(own, body(a_dispatch())), framed(others, body(a_dispatch())))
    of_others, fits = (each["decoded"] for each in json.loads(run("list", "--json").output)["letters"])
    assert fits["problem"] is None
    assert of_others["problem"].endswith(f"has the schema with id {others} in no version of {shell.contract.subject}")
    assert of_others["fields"] == fits["fields"]


def test_everything_about_a_record_is_shown_by_its_coordinate_too(shell: Place) -> None:
    shell.send_letters(b"\x1bvalue", original=[("ce_id", b"own"), ("odd", b"\xff\x07")])
    by_letter = run("show", f"{shell.dead_letter_topic}/0/0")
    assert by_letter.output == run("show", f"{shell.topic}/1/0").output
    assert "record       " + f"{shell.topic}/1/0" in by_letter.output
    assert "odd = 0xff07" in by_letter.output
    assert "1b76616c 7565" in by_letter.output
    missing = run("show", f"{shell.topic}/1/9")
    assert (missing.exit_code, missing.stdout) == (1, "")


def test_the_way_of_a_letter_from_open_to_redriven_to_purged(shell: Place) -> None:
    shell.send_letters(b"a", b"b")
    dry = run("redrive", shell.topic, "--dry-run")
    assert f"{shell.dead_letter_topic}/0/1 (Trial) would go back to the partition of {shell.topic}/1/1" in dry.output
    assert dry.output.endswith("\n2 would go back\n")
    assert shell.records() == []
    assert run("redrive", "--coordinate", f"{shell.topic}/1/0").output == "1 went back\n"
    assert json.loads(run("list", "--json").output)["counts"][0]["redriven"] == 1

    assert run("purge", shell.topic, "--settled", input="n\n").exit_code == 1
    assert len(list(shell.letters.letters())) == 2
    purged = run("purge", shell.topic, "--settled", "--yes").output
    assert f"the rest, from {shell.dead_letter_topic}/0/1 on, stays" in purged
    assert "1 deleted, 1 of them newly in the ledger" in purged
    assert [letter.value for letter in shell.letters.letters()] == [b"b"]
    assert "1 deleted" in run("purge", shell.topic, "--before", "2030-01-01T00:00Z", "--yes").output
    assert "nothing to purge" in run("purge", shell.topic, "--before", "2030-01-01T00:00Z").output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["list", "--since", "yesterday"], "write it as"),
        (["list", "--until", "2026-03-02"], "has no zone"),
        (["purge", "parcels.dispatched.v1"], "either --before or --settled"),
    ],
)
def test_a_mistake_is_a_sentence(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())


def test_without_a_stack_and_without_an_address_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match=r"no stack runs in .*headrace up.*HEADRACE_KAFKA__BOOTSTRAP_SERVERS"):
        client_settings(tmp_path)
