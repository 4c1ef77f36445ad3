"""What `python -m spark` needs of this machine: `spark_env`."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from deploy.local.downloads.jars import ensure_jars
from deploy.local.downloads.java import java_home


@functools.cache
def spark_env() -> Mapping[str, str]:
    """Java, the jars, and where the JVM keeps its classes: beside the packages of this clone, and gone with them.

    A commit with other jars has a folder of its own there: in turn, each would void the other's.

    Raises JarsUnavailable.
    """
    jars = ensure_jars()
    return {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "HEADRACE_SPARK__JARS": os.pathsep.join(str(jars[group]) for group in ("spark", "spark-s3a")),
        "HEADRACE_SPARK__CLASS_ARCHIVES": str(Path(sys.prefix) / "class-archives" / jars["spark"].name),
    }
