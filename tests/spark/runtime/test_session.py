"""What the session does for workers and for the next start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from deploy.local.downloads.spark_env import spark_env
from spark.records.decode import decode
from spark.records.schemas import WriterSchemas
from spark.runtime.session import doubled, slots_of
from spark.runtime.workers.worker_input import map_whole
from tests.jvm import SHORT_LIVED_ENV
from tests.spark.examples import SCHEMA, a_dispatch, body, framed, raw_frame

_LOG = """
import sys
import structlog

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
"""
_START = """
import sys
from contracts.settings import read_settings
from spark.runtime.session import start_session, stop_session
from spark.runtime.settings import SparkSettings

settings = read_settings(SparkSettings)
spark = start_session(settings, "a name")
print(spark.range(3).count())
jvm = spark.sparkContext._gateway.proc.pid
print(sum("a name.jsa" in line for line in open(f"/proc/{jvm}/maps")))
stop_session(spark, settings, has_worked=sys.argv[1] == "worked")
try:
    open(f"/proc/{jvm}/maps")
except FileNotFoundError:
    print("ended")
"""

_CLUSTER = """
from contracts.settings import read_settings
from spark.runtime.errors import ClusterUnfit
from spark.runtime.session import start_session
from spark.runtime.settings import SparkSettings

try:
    spark = start_session(read_settings(SparkSettings), "a name")
except ClusterUnfit as error:
    print(error)
else:
    print(spark.range(3).count())
    spark.stop()
"""


@pytest.mark.long
def test_a_later_start_takes_the_classes_from_the_archive_of_one_that_worked(tmp_path: Path) -> None:
    archives = tmp_path / "class archives"
    _run(archives, "idle")
    assert list(archives.iterdir()) == []
    first = _run(archives, "worked")
    assert [path.name for path in archives.iterdir()] == ["a name.jsa"]
    second = _run(archives, "idle")
    assert [path.name for path in archives.iterdir()] == ["a name.jsa"]
    assert (first[0], first[1], first[2]) == ("3", "0", "ended")
    assert second[0] == "3"
    assert int(second[1]) > 0
    assert second[2] == "ended"


def test_workers_have_no_archives_on_their_path(spark: SparkSession) -> None:
    """Each would be read again before each task."""

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            found = json.dumps({"path": sys.path, "kept": list(sys.path_importer_cache), "loaded": list(sys.modules)})
            yield pa.RecordBatch.from_pydict({"found": [found]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(look, "found string").collect()
    found = json.loads(row["found"])
    assert [entry for entry in found["path"] + found["kept"] if entry.endswith((".zip", ".jar"))] == []
    assert {"pyarrow", "confluent_kafka"} <= set(found["loaded"])


def test_rows_go_to_python_in_batches_of_a_few_megabytes(spark: SparkSession) -> None:
    """1,000 records, as many as a batch may have, can be a gigabyte."""

    def measure(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"records": [batch.num_rows], "size": [batch.nbytes]})

    records = spark.range(0, 200, 1, 1).selectExpr("cast(repeat('x', 500000) as binary) AS value")
    found = map_whole(records, measure, "records long, size long").collect()
    assert sum(row["records"] for row in found) == 200
    assert max(row["size"] for row in found) < 9 << 20


def test_reading_avro_leaves_no_schema_behind(spark: SparkSession) -> None:
    """Avro's fast reader keeps each that it was ever given, and every task has one of its own."""
    fast = spark._jvm.org.apache.avro.generic.GenericData.get().getFastReaderBuilder()  # type: ignore[union-attr]
    kept = fast.getClass().getDeclaredField("readerCache")
    kept.setAccessible(True)
    before = kept.get(fast).size()
    events = decode(raw_frame(spark, framed(7, body(a_dispatch()))), WriterSchemas("a subject", SCHEMA, {7: SCHEMA}))
    assert events.filter("event IS NOT NULL").count() == 1
    assert kept.get(fast).size() == before


def test_executors_elsewhere_get_no_keys_over_connections_in_clear(tmp_path: Path) -> None:
    """Tasks have them, as the options of Spark's own source do."""
    defaults = tmp_path / "spark-defaults.conf"
    env = (
        os.environ
        | spark_env()
        | SHORT_LIVED_ENV
        | {"HEADRACE_SPARK__MASTER": "local-cluster[1,1,1024]", "SPARK_CONF_DIR": str(tmp_path)}
    )

    def start(*conf: str) -> str:
        defaults.write_text("\n".join(conf), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-c", _LOG + _CLUSTER], env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert "set spark.authenticate and spark.network.crypto.enabled, or" in start()
    encrypted = (
        "spark.authenticate true",
        "spark.authenticate.secret of-this-test",
        "spark.network.crypto.enabled true",
    )
    assert start(*encrypted) == "3"


@pytest.mark.parametrize(
    ("master", "slots", "twice"),
    [
        ("local[2]", 2, "local[4]"),
        ("local[12,3]", 12, "local[24]"),
        ("local[*]", None, "local[*]"),
        ("local[*,3]", None, "local[*]"),
        ("local", None, "local"),
        ("spark://host:7077", None, "spark://host:7077"),
    ],
)
def test_two_queries_beside_each_other_get_a_slot_for_each_partition(
    master: str, slots: int | None, twice: str
) -> None:
    assert slots_of(master) == slots
    assert doubled(master) == twice


def _run(archives: Path, how: str) -> list[str]:
    env = os.environ | spark_env() | {"HEADRACE_SPARK__CLASS_ARCHIVES": str(archives)}
    done = subprocess.run(
        [sys.executable, "-c", _LOG + _START, how], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()
