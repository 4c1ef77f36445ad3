"""What a worker's function sees of the end of its rows. It leans on PySpark's own protocol, and this tells when that moves."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deploy.local.processes.deployable import ROOT
from spark.runtime.workers.worker_input import map_whole, whole
from tests.spark.live_query import wait_for

ROWS = 5_500


def note(file: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes to `file` how many rows came, and how they ended."""
    rows, ended = 0, "whole"
    try:
        for batch in batches:
            rows += batch.num_rows
    except Exception as error:
        ended = type(error).__name__
        raise
    finally:
        file.write_text(f"{rows} {ended}")
    yield from ()


def handed_on(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """As a worker that is not told where its rows end."""
    yield from batches


def test_rows_that_all_came_end(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "seen"
    map_whole(spark.range(0, ROWS, 1, 1), functools.partial(note, file), "id long").collect()
    assert file.read_text() == f"{ROWS} whole"


def test_a_task_without_rows_ends(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "seen"
    map_whole(spark.range(0, ROWS, 1, 1).where("id < 0"), functools.partial(note, file), "id long").collect()
    assert file.read_text() == "0 whole"


@pytest.mark.parametrize("failing_at", [2000, 2999, ROWS - 1])
def test_rows_whose_source_fails_end_early(spark: SparkSession, tmp_path: Path, failing_at: int) -> None:
    rows, ended = cut_at(failing_at, spark, tmp_path / "seen").split()
    # Between two messages of Arrow, so nothing but what is missing behind them tells.
    assert (0 < int(rows) <= failing_at, int(rows) % 1000, ended) == (True, 0, "EndedEarly")


def test_rows_whose_source_fails_at_once_are_no_empty_task(spark: SparkSession, tmp_path: Path) -> None:
    # Not even the schema of the stream has come.
    assert cut_at(0, spark, tmp_path / "seen") == "0 ArrowInvalid"


def test_rows_of_another_worker_whose_source_fails_end_early(spark: SparkSession, tmp_path: Path) -> None:
    """What comes from a worker that is not told, as one that keeps a state, still ends early for the one behind it that writes."""
    rows, ended = cut_at(
        2999, spark, tmp_path / "seen", through=lambda of: of.mapInArrow(handed_on, "text string")
    ).split()
    assert (int(rows) <= 2999, ended in ("EndedEarly", "ArrowInvalid")) == (True, True)


def cut_at(
    failing_at: int, spark: SparkSession, file: Path, through: Callable[[DataFrame], DataFrame] = lambda of: of
) -> str:
    """What `note` writes when the source fails at this row, which comes `through` something."""
    failing = F.when(F.col("id") == failing_at, F.raise_error(F.lit("spoilt"))).otherwise(F.lit("x" * 100))
    # As wide as a record: a message of 1,000 rows is more than Spark holds back.
    rows = spark.range(0, ROWS, 1, 1).select(failing.cast("string").alias("text"))
    with pytest.raises(PySparkException, match="spoilt"):
        map_whole(through(rows), functools.partial(note, file), "text string").collect()
    wait_for("the worker to write", lambda: file.exists() and bool(file.read_text()), 30)
    return file.read_text()


def test_rows_of_a_worker_that_cannot_tell_are_not_handed_on() -> None:
    with pytest.raises(TypeError, match=r"spark\.runtime\.workers\.python_daemon has not started"):
        next(whole(iter([])))


def test_no_function_gets_rows_from_spark_in_another_way() -> None:
    handing = re.compile(
        r"\.(mapInArrow|mapInPandas|applyInArrow|applyInPandas\w*|mapPartitions\w*|foreachPartition|transformWithState\w*)\("
    )
    found = [str(file.relative_to(ROOT)) for file in (ROOT / "spark").rglob("*.py") if handing.search(file.read_text())]
    # What a worker with a state does is in Spark's store, and in rows for the next worker: a task that fails drops both.
    with_state = "spark/derivation/stateful/remembering.py"
    assert sorted(found) == [with_state, "spark/runtime/workers/worker_input.py"]
