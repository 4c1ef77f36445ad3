"""Ports for a stack that a test starts by the command line."""

from __future__ import annotations

from deploy.errors import PortInUse
from deploy.local.ports import Ports


def a_free_offset() -> int:
    """A `--port-offset` whose ports nobody uses, below those that clients' connections get (32768 on)."""
    for offset in range(1000, 13_000, 150):
        try:
            Ports().offset(offset).check_free()
        except PortInUse:
            continue
        return offset
    raise AssertionError("no ports are free")
