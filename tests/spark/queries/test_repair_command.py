"""What `repair` says of wrong options, without a stack."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deploy.errors import DeployError
from deploy.local.spark_command import run
from spark.queries.repair_command import add_options


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    add_options(made)
    return made


def test_a_time_has_a_zone(parser: argparse.ArgumentParser) -> None:
    assert parser.parse_args(["--since", "2026-01-08T00:00Z"]).since == datetime(2026, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "says"),
    [("2013-01-08", "has no zone: write it as 2026-01-08T00:00Z"), ("yesterday", "is no time: write it as")],
)
def test_a_wrong_time_is_refused_with_the_right_form(
    parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--since", text])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_without_a_stack_it_says_how_to_name_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HEADRACE_KAFKA__BOOTSTRAP_SERVERS", "HEADRACE_REGISTRY__URL"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(DeployError, match="no stack runs in .* set HEADRACE_KAFKA__BOOTSTRAP_SERVERS"):
        run("repair", [], tmp_path)
