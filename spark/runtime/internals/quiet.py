"""Work that others must not wait for: `quietly`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from spark.runtime.internals.java import java_class, java_process

_NICE = 10
_NAME = "headrace-quiet"
"""No longer than Linux lets a thread's name be: 15 bytes."""

T = TypeVar("T")


def quietly(spark: SparkSession, work: Callable[[], T]) -> T:
    """What `work` returns, or raises. It runs in a thread of less priority than all others, and so does what the Java process does for it: the threads, too,
    that it starts there. Where the system knows no such thing, it runs as ever.
    """
    done: Future[T] = Future()

    def run() -> None:
        try:
            _lower(spark)
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001  for whoever waits
            done.set_exception(error)

    threading.Thread(target=run, name="quiet", daemon=True).start()
    return done.result()


def _lower(spark: SparkSession) -> None:
    """This thread, and the one that serves it in the Java process: PySpark has one there for each of ours."""
    java_class(spark._jvm, "java.lang.Thread").currentThread().setName(_NAME)
    jvm = java_process(spark.sparkContext)
    # One that has ended meanwhile, and all where there is no such folder.
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        for task in Path(f"/proc/{jvm.pid}/task").iterdir() if jvm is not None else ():
            if (task / "comm").read_text(encoding="utf-8").strip() == _NAME:
                os.setpriority(os.PRIO_PROCESS, int(task.name), _NICE)


def quiet_compilers(spark: SparkSession) -> None:
    """Give the threads that compile in the Java process less priority than all others."""
    jvm = java_process(spark.sparkContext)
    with suppress(OSError):
        for task in Path(f"/proc/{jvm.pid}/task").iterdir() if jvm is not None else ():
            if "CompilerThre" in (task / "comm").read_text(encoding="utf-8"):
                os.setpriority(os.PRIO_PROCESS, int(task.name), _NICE)
