from __future__ import annotations

import pytest
from typer.testing import CliRunner

from contracts.cli import contracts_app, topics_app
from deploy.local.stack import LocalStack

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
    monkeypatch.setattr("contracts.provision._TIMEOUT_SECONDS", 2.0)
    result = CliRunner().invoke(topics_app, ["create"], env=NOBODY)
    assert result.exit_code == 1
    assert result.stderr.startswith("the brokers at 127.0.0.1:1 say: ")
    assert "Traceback" not in result.output


def test_a_wrong_setting_ends_with_status_two() -> None:
    result = CliRunner().invoke(contracts_app, ["register"], env={"HEADRACE_REGISTRY__URL": "nonsense"})
    assert result.exit_code == 2
