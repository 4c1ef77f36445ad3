"""`headrace status` and `headrace down`: a stack seen from outside of the `up` that owns it."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from contracts.definitions.catalog import load_catalog
from deploy.local.folder import Folder
from deploy.local.processes.process import resident_bytes, running
from deploy.local.servers.stack import LocalStack
from deploy.local.watching import view
from deploy.local.watching.gauges import Gauges
from deploy.local.watching.snapshot import ProcessState, Snapshot

_COLUMNS = 120
"""Of what isn't printed on a terminal."""


def status(directory: Path, *, as_json: bool) -> bool:
    """Print the state once; False, and one sentence, when no stack runs in the folder, or it is still starting."""
    folder = Folder(directory)
    snapshot = look(folder)
    if snapshot is None:
        starts = folder.is_owned()
        text = (
            f"the stack in {folder.path} is starting, or ending: its `up` says how far it is"
            if starts
            else f"no stack runs in {folder.path}: ./headrace up starts one"
        )
        print(json.dumps({"running": False} | ({"starting": True} if starts else {})) if as_json else text)
    elif as_json:
        print(json.dumps({"running": True, **snapshot.json()}, indent=2))
    else:
        _print(snapshot, folder)
    return snapshot is not None


def look(folder: Folder) -> Snapshot | None:
    """The state of the stack in the folder, which takes a second; None if none runs there."""
    state = folder.read_state()
    if state is None or not running(folder.path):
        return None
    ports, known = state
    stack = LocalStack(folder.path, ports)
    gauges = Gauges(stack.settings(), ports, load_catalog())
    try:
        gauges.snapshot()
        time.sleep(1)  # events per second need two looks
        return replace(gauges.snapshot(), processes=_processes(folder, [ProcessState(**each) for each in known]))
    finally:
        gauges.close()


def down(directory: Path) -> None:
    """Stop whatever runs in the folder; its data stay."""
    folder = Folder(directory)
    if not folder.stop(_say):
        print(f"nothing runs in {folder.path}")


def _say(text: str) -> None:
    # Whoever reads it may be gone, which is no reason to leave half of it running.
    with suppress(OSError):
        print(text, flush=True)


def _print(snapshot: Snapshot, folder: Folder) -> None:
    console = Console(width=None if sys.stdout.isatty() else _COLUMNS)
    console.print(view.render(snapshot))
    if not folder.is_owned():
        console.print("the `up` that started this is gone: ./headrace down stops what is left", style="red")


def _processes(folder: Folder, known: list[ProcessState]) -> list[ProcessState]:
    """As the owner last wrote them; of one that is gone, what really runs."""
    if folder.is_owned():
        return known
    return [
        ProcessState(name, "left running", process.pid, 0, resident_bytes(process) // 1_000_000)
        for name, process in running(folder.path).items()
    ]
