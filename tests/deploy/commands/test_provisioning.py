from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from contracts.cli import contracts_app
from deploy.commands.provisioning import topics_app
from deploy.errors import DeployError
from deploy.local.servers.stack import LocalStack

NOBODY = {"HEADRACE_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "HEADRACE_REGISTRY__URL": "http://127.0.0.1:1/"}


@pytest.mark.system
def test_applying_the_contracts_again_changes_nothing(stack: LocalStack) -> None:
    environment = stack.settings_env()
    for app, command, says in (
        (contracts_app, "register", "the registry has every schema already\n"),
        (topics_app, "create", "every topic is as its contract says\n"),
    ):
        result = CliRunner().invoke(app, [command], env=environment)
        assert (result.exit_code, result.output) == (0, says)


def test_brokers_that_do_not_answer_are_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contracts.servers.provision._TIMEOUT_SECONDS", 2.0)
    with pytest.raises(DeployError, match="^the brokers at 127.0.0.1:1 say: "):
        CliRunner().invoke(topics_app, ["create"], env=NOBODY, catch_exceptions=False)


@pytest.mark.parametrize(("app", "command"), [(contracts_app, "register"), (topics_app, "create")])
def test_without_a_stack_it_says_how_to_start_one(app: typer.Typer, command: str, tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="no stack runs in .*: ./headrace up starts one"):
        CliRunner().invoke(app, [command, "--dir", str(tmp_path)], catch_exceptions=False)


def test_a_wrong_setting_ends_with_status_two() -> None:
    result = CliRunner().invoke(contracts_app, ["register"], env={"HEADRACE_REGISTRY__URL": "nonsense"})
    assert result.exit_code == 2
