"""The pipelines of the parcels, one file for each, named after its function. `load` finds them."""

from __future__ import annotations

import importlib

from spark.pipeline import Pipeline


def load(name: str) -> Pipeline:
    """As `spark.pipelines.load`, of these."""
    found = getattr(importlib.import_module(f"{__name__}.{name}"), name)
    assert isinstance(found, Pipeline)
    return found
