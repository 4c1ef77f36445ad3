"""PySpark's daemon for Python workers, without the zip files on its path.

Spark puts its own Python sources there as zip files, whose directories every worker reads again before each task: 50 ms of
computing, for packages that are installed besides. `spark.session` names this module in `spark.python.daemon.module`.
"""

from __future__ import annotations

import sys

sys.path[:] = [entry for entry in sys.path if not entry.endswith(".zip")]
sys.path_importer_cache.clear()

from pyspark.daemon import manager  # noqa: E402

if __name__ == "__main__":
    manager()
