"""PySpark's daemon for Python workers, without archives on its path.

Spark puts its own Python sources there as zip files, and a jar, whose tables of contents every worker reads again before each
task: 50 ms of computing, for packages that are installed besides. And what every worker needs is loaded once, before they are forked.
`spark.session` names this module in `spark.python.daemon.module`.
"""

from __future__ import annotations

import gc
import sys

sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
sys.path_importer_cache.clear()

import confluent_kafka  # noqa: F401
import pyarrow  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    # Workers collect their garbage after each task; this is none, and stays in memory that they share.
    gc.collect()
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]
