"""The receivers file that docs/guides/add-an-alert.md points to."""

from __future__ import annotations

from pathlib import Path

import services.alerting
from services.alerting.notifying.receiver import load_receivers


def test_the_example_of_a_receivers_file_is_valid() -> None:
    example = Path(services.alerting.__file__).with_name("receivers.example.yaml")
    assert [receiver.name for receiver in load_receivers(example)] == ["on-call", "this-machine"]
