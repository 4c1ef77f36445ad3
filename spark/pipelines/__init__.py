"""The pipelines: one file for each, in Python or SQL, which bears its name. `load` finds them."""

from __future__ import annotations

import importlib

from contracts.definitions.pipelines import LAKE, pipeline_files
from spark.pipeline import Pipeline
from spark.runtime.errors import PipelineUnfit
from spark.sql_pipeline import sql_pipeline


def load(name: str) -> Pipeline:
    """The pipeline of this name. Raises PipelineUnfit if there is none, or its file fails."""
    known = pipeline_files()
    if name == LAKE:
        raise PipelineUnfit(f"{LAKE} is the name of the lake's folders: call the pipeline otherwise")
    if name not in known:
        raise PipelineUnfit(f"there is no pipeline {name}; there are: {', '.join(known)}")
    if known[name].suffix == ".sql":
        return sql_pipeline(known[name])
    try:
        found = getattr(importlib.import_module(f"{__name__}.{name}"), name, None)
    except Exception as error:
        raise PipelineUnfit(f"spark/pipelines/{name}.py: {type(error).__name__}: {error}") from error
    if not isinstance(found, Pipeline):
        raise PipelineUnfit(
            f"spark/pipelines/{name}.py has no pipeline {name}: decorate a function of this name with @pipeline"
        )
    return found
