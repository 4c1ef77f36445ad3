"""The Java process behind a session."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession


def java_process(context: SparkContext) -> subprocess.Popen[bytes] | None:
    """The process; None where somebody else has started it."""
    found: subprocess.Popen[bytes] | None = getattr(context._gateway, "proc", None)
    return found


def set_hadoop_options(context: SparkContext, options: Mapping[str, str]) -> None:
    """What Hadoop's file systems read, past the command line, which every user of the machine can."""
    hadoop = context._jsc.hadoopConfiguration()
    for option, value in options.items():
        hadoop.set(option, value)


def serve_callbacks(context: SparkContext) -> None:
    """Start what `foreachBatch` is called by. The first one does it, and two at once would do it twice."""
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]  # PySpark's own


def locked(context: SparkContext, files: Sequence[Path]) -> list[Any]:
    """The Java process's locks on these files, by `fcntl`: none of one that it has locked already. It keeps them as long as it lives."""
    file_class = java_class(context._jvm, "java.io.RandomAccessFile")
    channels = [file_class(str(file), "rw").getChannel() for file in files]
    return [lock for channel in channels if (lock := _try_lock(channel)) is not None]


def _try_lock(channel: Any) -> Any:
    try:
        return channel.tryLock()
    except Py4JJavaError:
        return None  # OverlappingFileLockException: of an earlier session of this process


def java_class(jvm: Any, name: str) -> Any:
    """A class by its whole name, in one question: 1 ms. `jvm.a.b.C` is one for each part, 12 ms, for the JVM looks for a class `a` in every jar."""
    return getattr(jvm, name)


def java_property(spark: SparkSession, name: str) -> str | None:
    """A system property of the driver's Java process, which tasks of `local[N]` share."""
    found: str | None = java_class(spark._jvm, "java.lang.System").getProperty(name)
    return found


def set_java_property(spark: SparkSession, name: str, value: str) -> None:
    """Set one."""
    java_class(spark._jvm, "java.lang.System").setProperty(name, value)


def clear_java_property(spark: SparkSession, name: str) -> None:
    """Remove one, if it is there."""
    java_class(spark._jvm, "java.lang.System").clearProperty(name)


def name_java_thread(spark: SparkSession, name: str) -> None:
    """Name the thread of the Java process that serves this one of ours."""
    java_class(spark._jvm, "java.lang.Thread").currentThread().setName(name)


def activate(spark: SparkSession) -> None:
    """Make a session the one of this thread."""
    java_class(spark._jvm, "org.apache.spark.sql.SparkSession").setActiveSession(spark._jsparkSession)
