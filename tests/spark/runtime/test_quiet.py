"""`beside`, `quietly` and `quiet_compilers`."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress

import pytest
from pyspark.sql import SparkSession

from spark.runtime import quiet
from spark.runtime.quiet import beside, quiet_compilers, quietly


class Enough(Exception):
    """Of the test's own."""


def test_it_returns_and_raises_what_the_work_does(spark: SparkSession) -> None:
    assert quietly(spark, lambda: spark.range(3).count(), lambda: None) == 3
    with pytest.raises(Enough):
        quietly(spark, _fail, lambda: None)


def test_beside_it_runs_in_a_thread_of_its_own_with_the_priority_of_all(spark: SparkSession) -> None:
    ours = threading.get_native_id()
    thread, nice = beside(spark, lambda: (threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0)), lambda: None)
    assert thread != ours
    assert nice == os.nice(0)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it runs as ever")
def test_its_threads_have_less_priority(spark: SparkSession) -> None:
    def nice() -> list[int]:
        of_java = [thread for thread, name in quiet._threads_of_java(spark) if name == quiet._NAME]
        found = []
        for each in (threading.get_native_id(), *of_java):
            # One of a test before may end meanwhile.
            with suppress(ProcessLookupError):
                found.append(os.getpriority(os.PRIO_PROCESS, each))
        return found

    found = quietly(spark, nice, lambda: None)
    # Python's, and the one that serves it in the Java process; others may not have ended yet.
    assert len(found) >= 2
    assert {*found} == {max(os.nice(0), quiet._NICE)}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere they stay as they are")
def test_compilers_have_less_priority_for_good(spark: SparkSession) -> None:
    quiet_compilers(spark)
    compilers = [thread for thread, name in quiet._threads_of_java(spark) if "CompilerThre" in name]
    assert compilers
    assert {os.getpriority(os.PRIO_PROCESS, each) for each in compilers} == {max(os.nice(0), quiet._COMPILERS_NICE)}


def test_plans_are_optimised_by_the_sessions_settings_there(spark: SparkSession) -> None:
    def is_ansi() -> bool:
        assert spark._jvm is not None
        return bool(spark._jvm.org.apache.spark.sql.internal.SQLConf.get().ansiEnabled())

    # By Spark's own settings it is.
    assert not quietly(spark, is_ansi, lambda: None)


def test_what_is_raised_meanwhile_waits_for_the_work(spark: SparkSession) -> None:
    ended: list[bool] = []

    def work() -> None:
        time.sleep(0.5)
        ended.append(True)

    with pytest.raises(Enough):
        quietly(spark, work, _fail)
    assert ended


def _fail() -> None:
    raise Enough
