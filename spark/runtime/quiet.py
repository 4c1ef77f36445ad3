"""Work beside other work, which must not wait for it: `beside`, `quietly`, `quiet_compilers`."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from spark.runtime.aside import aside
from spark.runtime.internals.java import activate, java_process, name_java_thread

_NICE, _COMPILERS_NICE = 10, 5
_NAME = "headrace-quiet"
"""No longer than Linux lets a thread's name be: 15 bytes."""
_LOOK_SECONDS = 0.1

T = TypeVar("T")


def beside(spark: SparkSession, work: Callable[[], T], meanwhile: Callable[[], object]) -> T:
    """What `work` returns, or raises. It runs in a thread of its own. `meanwhile` is called all the while; what it raises is raised when `work` is done."""

    def activated() -> T:
        # Otherwise plans are optimised by Spark's settings, not by those of the session.
        activate(spark)
        return work()

    done = aside("beside", activated)
    while not wait([done], _LOOK_SECONDS).done:
        try:
            meanwhile()
        except BaseException:
            wait([done])
            raise
    return done.result()


def quietly(spark: SparkSession, work: Callable[[], T], meanwhile: Callable[[], object]) -> T:
    """`beside`, in a thread of niceness 10, which what the Java process does for it has, too: the threads as well that it starts there, for as long as they live. On
    another system than Linux it runs as ever.
    """

    def lowered() -> T:
        _lower(spark)
        return work()

    return beside(spark, lowered, meanwhile)


def quiet_compilers(spark: SparkSession) -> None:
    """Give the threads that compile in the Java process niceness 5, for good: a process may not take that back."""
    for thread, name in _threads_of_java(spark):
        if "CompilerThre" in name:
            _set_nice(thread, _COMPILERS_NICE)


def _lower(spark: SparkSession) -> None:
    """This thread, and the one that serves it in the Java process: PySpark has one there for each of ours."""
    name_java_thread(spark, _NAME)
    if sys.platform == "linux":
        _set_nice(threading.get_native_id(), _NICE)
    for thread, name in _threads_of_java(spark):
        if name == _NAME:
            _set_nice(thread, _NICE)


def _threads_of_java(spark: SparkSession) -> Iterator[tuple[int, str]]:
    """Id and name of each."""
    jvm = java_process(spark.sparkContext)
    if jvm is None or sys.platform != "linux":
        return
    for thread in Path(f"/proc/{jvm.pid}/task").iterdir():
        # It may have ended meanwhile.
        with suppress(OSError):
            yield int(thread.name), (thread / "comm").read_text(encoding="utf-8").strip()


def _set_nice(thread: int, nice: int) -> None:
    # The thread may have ended, and a system may forbid it.
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, nice)
