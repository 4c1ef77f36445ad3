"""Which of the ways that make a pipeline fast can be taken: `usable`."""

from __future__ import annotations

import structlog
from pyspark.sql import SparkSession

from spark.runtime.errors import SparkMoved
from spark.runtime.internals.private import PRIVATE, moved
from spark.runtime.settings import LiveSettings

_log = structlog.get_logger(__name__)

SHORTCUTS = ("keep_broadcasts", "encode_once", "plan_once", "read_once")
"""The settings, each of which has a plain way beside it."""


def usable(spark: SparkSession, live: LiveSettings) -> LiveSettings:
    """`live` without the ways that this Spark has not; each that is not taken is told. Raises SparkMoved if no pipeline can run on it."""
    gone = {name: moved(spark, members) for name, members in PRIVATE.items()}
    if needed := gone[""] + gone.get(live.mode, []):
        raise SparkMoved(
            f"Spark {spark.version} has no {', '.join(needed)}, which pipelines need: install the version in deploy/locks"
        )
    for name in SHORTCUTS:
        if not getattr(live, name):
            _log.info("the plain way is taken", setting=name, why="the setting is false")
        elif gone.get(name):
            why = f"Spark {spark.version} has no {', '.join(gone[name])}"
            _log.warning("the plain way is taken", setting=name, why=why)
    return live.model_copy(update={name: False for name in SHORTCUTS if gone.get(name)})
