"""PySpark's daemon for Python workers, without archives on its path; its workers can tell whether all rows of a task came.

Spark puts its own Python sources there as zip files, and a jar, whose tables of contents every worker reads again before each
task: 50 ms of computing, for packages that are installed besides. And what every worker needs is loaded once, before they are forked. A memory's
rows go in and out in batches of many keys.
`spark.runtime.session` names this module in `spark.python.daemon.module`.
"""

from __future__ import annotations

import gc
import sys

sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
sys.path_importer_cache.clear()

import confluent_kafka  # noqa: F401
import pyarrow  # noqa: F401
import pyspark.daemon
import pyspark.worker

from spark.runtime.workers.keyed_rows import KeyedRows
from spark.runtime.workers.worker_input import main

if __name__ == "__main__":
    pyspark.worker.TransformWithStateInPySparkRowSerializer = KeyedRows  # type: ignore[attr-defined]
    pyspark.daemon.worker_main = main
    # Workers collect their garbage after each task; this is none, and stays in memory that they share.
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()  # type: ignore[no-untyped-call]
