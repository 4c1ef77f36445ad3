"""What can't be right is refused before anything starts, with a sentence that says how to write it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from contracts.definitions.pipelines import pipeline_files
from contracts.settings import Settings, read_settings
from deploy.cli import main
from deploy.local.processes.deployable import deployables

HEADRACE = str(Path(sys.executable).parent / "headrace")
ROOT = Path(__file__).parents[3]
_WIDE = "300"
"""Columns: so a sentence in a box is one line."""
DEPLOYABLES = [
    ["contracts"],
    ["spark", "lake"],
    *(["spark", name, *deployables().pipelines] for name in ("run", "repair", "state", "trial")),
]
DEPLOYABLES += [[f"services.{main.parent.name}"] for main in sorted(ROOT.glob("services/*/__main__.py"))]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["up", "--until", "yesterday"], 2, "--until is no time: write it as 2026-03-02T08:30Z"),
        (["up", "--until", "2013-01-08"], 2, "--until has no zone: write 2013-01-08T00:00Z for UTC"),
        (["up", "--kafka-port", "99999999"], 2, "99999999 is not in the range 1<=x<=65535"),
        (["up", "--port-offset", "70000"], 2, "70000 is not in the range 0<=x<=46000"),
        (["up", "--dir", __file__], 1, "can't be the stack's folder (File exists): take another by --dir."),
        (
            ["up", "--pipelines", "mine"],
            1,
            f"There is no pipeline mine; there are {', '.join(pipeline_files())}",
        ),
        (["audit"], 2, "no verdict: no stack runs in"),
        (["repair"], 2, "Missing argument 'PIPELINE'"),
        (["state"], 2, "Missing argument 'PIPELINE'"),
        (["state", "any", "--where", "matched =="], 2, "Invalid value for --where: matched ==: "),
        (["state", "any"], 1, "headrace: no stack runs in"),
        (["plan", "--most", "7"], 2, "--most: it is of the records: say --records"),
        (["plan", "--records"], 1, "headrace: no stack runs in"),
        (["dlq", "show", "17"], 2, "a coordinate is TOPIC/PARTITION/OFFSET, such as alerts.raised.v1/0/17"),
        (["dlq", "redrive", "--coordinate", "x/y/z"], 2, "a coordinate is TOPIC/PARTITION/OFFSET"),
        (["dlq", "list", "--since", "2013-01-01"], 2, "--since has no zone: write 2013-01-01T00:00Z for UTC"),
        (["test", "--faults", "--mode", "at-least-once"], 2, "is not one of 'exactly-once', 'real-time'"),
        (["test", "--short"], 2, "--short: it is of the fault campaign: say --faults"),
        (["test", "--seed", "2"], 2, "--seed: it is of the fault campaign: say --faults"),
        (["test", "--mode", "real-time"], 2, "--mode: it is of the fault campaign: say --faults"),
        (["test", "--unit", "--long"], 2, "give one of these"),
        (["test", "--faults", "--unit"], 2, "--unit: leave it or --faults out"),
        (["test", "--faults", "-k", "live"], 2, "-k: leave it or --faults out"),
        (["test", "--faults", "--short", "--seed", "2"], 2, "leave --seed, --seeds, --mode and NAME out"),
        (["test", "--faults", "--short", "--mode", "real-time"], 2, "leave --seed, --seeds, --mode and NAME out"),
        (["test", "--faults", "--short", "live_killed"], 2, "leave --seed, --seeds, --mode and NAME out"),
        (
            ["bench", "latency", "--changes", "--rate", "100", "--rate", "200"],
            2,
            "--rate: with --changes there is one load for each mode: a second one would begin with the new schema",
        ),
        (["bench", "latency", "--changes", "--seconds", "119"], 2, "--seconds: with --changes it must be 120 or more"),
        (["bench", "latency", "--interval", "3601"], 2, "3601.0 is not in the range 5<=x<=3600"),
        (["bench", "soak", "--version-every", "29"], 2, "--version-every: a version comes with a look at most"),
        (["bench", "cores", "--cores", "10000"], 2, "--cores: this machine has"),
        (["bench", "peers", "--changes", "--seconds", "119"], 2, "--seconds: with --changes it must be 120 or more"),
    ],
)
def test_an_option_that_cannot_be_right(
    arguments: list[str],
    status: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # In this process: another one takes a second for its imports alone.
    monkeypatch.setattr(sys, "argv", ["headrace", *_in(tmp_path, arguments)])
    monkeypatch.setenv("COLUMNS", _WIDE)
    before = structlog.get_config()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        structlog.configure(**before)
        for number, handler in handlers.items():  # `bench` has its own
            signal.signal(number, handler)
    found = capsys.readouterr()
    # `sys.exit` says a text itself, and ends with 1.
    text, code = (ended.value.code, 1) if isinstance(ended.value.code, str) else ("", ended.value.code)
    assert code == status
    assert said in found.out + found.err + text
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_setting_of_spark_stops_up_at_once(tmp_path: Path) -> None:
    said = "wrong setting HEADRACE_LIVE__MODE: Input should be 'exactly-once', 'real-time' or 'at-least-once'"
    _refused(["up"], 2, said, tmp_path, HEADRACE_LIVE__MODE="realtime")


def test_several_pipelines_in_real_time_mode_are_refused_at_once(tmp_path: Path) -> None:
    said = "In real-time mode a process runs one pipeline, whose tasks hold their slots: name one by --pipelines"
    _refused(["up", "--pipelines", "all"], 1, said, tmp_path, HEADRACE_LIVE__MODE="real-time")


def test_a_trigger_that_ends_pipelines_is_refused_at_once(tmp_path: Path) -> None:
    said = "set it for `python -m spark run NAME` alone"
    _refused(["up"], 1, said, tmp_path, HEADRACE_LIVE__TRIGGER="available-now")


def test_a_setting_that_is_json_without_end_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_KAFKA", "[" * 60_000)
    with pytest.raises(SystemExit, match="2"):
        read_settings(Settings)
    assert "too many brackets within each other" in capsys.readouterr().err


@pytest.mark.parametrize("deployable", DEPLOYABLES, ids=".".join)
def test_a_deployable_that_is_asked_for_help_or_told_nonsense_does_nothing_else(deployable: list[str]) -> None:
    # Whoever read the settings would stop at this one.
    env = {**os.environ, "HEADRACE_HTTP__PORT": "nowhere"}
    for option, status, said in (
        ("--help", 0, "usage: python -m " + " ".join(deployable[:2])),
        ("--nonsense", 2, "unrecognized arguments: --nonsense"),
    ):
        command = [sys.executable, "-m", *deployable, option]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == status, done.stderr
        assert said in (done.stderr if status else done.stdout)


def _in(directory: Path, arguments: list[str]) -> list[str]:
    takes_one = "--dir" not in arguments and arguments[0] not in ("bench", "test")
    return [*arguments, "--dir", str(directory)] if takes_one else arguments


def _refused(arguments: list[str], status: int, said: str, directory: Path, **env: str) -> None:
    done = subprocess.run(
        [HEADRACE, *_in(directory, arguments)],
        env={**os.environ, "COLUMNS": _WIDE, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert list(directory.iterdir()) == []
