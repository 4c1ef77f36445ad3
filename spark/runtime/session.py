"""The one Spark session of a deployable."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from contracts.records.avro_walk import JAVA_ITEMS
from contracts.settings import S3Settings
from spark.runtime.errors import ClusterUnfit, QueryFailed
from spark.runtime.internals.java import java_process, locked, set_hadoop_options
from spark.runtime.mode import Mode
from spark.runtime.scratch import Scratch
from spark.runtime.settings import SparkSettings

_LOG4J = Path(__file__).with_name("log4j2.properties")

_AVRO = " ".join(
    f"-Dorg.apache.avro.{what}={value}"
    for what, value in (
        # A hostile body can claim a string of 2 GiB in five bytes, which the Java library would allocate at once.
        ("limits.string.maxLength", 16 << 20),
        ("limits.bytes.maxLength", 16 << 20),
        ("limits.collectionItems.maxLength", JAVA_ITEMS),
        # Keeps each schema that it has ever read by (AVRO-4253), and every task parses its own: 13 kB each, for good.
        ("fastread", "false"),
    )
)

# Until the first batch is written, the JVM's compilers use as much of two cores as Spark's tasks do. With three to five
# times the default thresholds the optimising one has 40 % less to do, and the tasks take no longer (measured on `lake`).
_COMPILER = " ".join(
    f"-XX:{threshold}={calls}"
    for threshold, calls in (
        ("Tier4InvocationThreshold", 20_000),
        ("Tier4MinInvocationThreshold", 3_000),
        ("Tier4CompileThreshold", 50_000),
        ("Tier4BackEdgeThreshold", 120_000),
    )
)

_REAL_TIME = (
    # By default everything is collected, 200 ms, whenever the code cache has grown by 15 %; so only when nine tenths of it are full.
    "-XX:SweeperThreshold=100 "
    # By default everything is collected when classes first take 21 MiB, and again later.
    "-XX:MetaspaceSize=512m "
    # Planning the next query leaves much alive, which each young collection copies: 25 to 45 ms by one thread, 9 to 15 by two.
    "-XX:+UseParallelGC"
)

_LOCAL = re.compile(r"^local\[(\d+|\*)(?:,\s*\d+)?\]$")

_JVM_SECONDS = 60.0
_NOTICE_SECONDS = 1.0
"""A process that dies closes its connections a little before it is gone."""

_BEGAN = time.time()
"""Before the JVM of this process."""

_scratch: Scratch | None = None
"""Of the JVM of this process, of which there is one."""

_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The default of 50 partitions costs a small table a second for each new version.
    "spark.databricks.delta.snapshotPartitions": "1",
}


def start_session(settings: SparkSettings, name: str, *, delta: bool = False, live: Mode | None = None) -> SparkSession:
    """Start Spark; `name` is what the cluster shows. With `delta`, Spark reads and writes Delta tables itself. `live` is the mode of
    `live`, None for whatever else runs.

    The JVM's options only count for the first session of a process. Raises ClusterUnfit where executors would get the keys of
    brokers and S3 in clear, and ScratchUnusable.
    """
    global _scratch
    if _scratch is None:
        _scratch = Scratch()
    # Python workers must be this interpreter: another one lacks our packages.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # glibc gives each of the JVM's many threads an arena of its own, and hardly ever any of it back.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    # Arrow's own allocator keeps 35 MiB more in each of the lake's workers, and is no faster there.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    jars = os.pathsep.join(f"{folder}/*" for folder in settings.spark.jars.split(os.pathsep) if folder)
    java_options = (
        f"{_REAL_TIME if live == Mode.REAL_TIME else '-XX:+UseSerialGC'} -XX:-DontCompileHugeMethods {_COMPILER} -Xss4m "
        f'-Dlog4j2.configurationFile={_LOG4J.as_uri()} "-Djava.io.tmpdir={_scratch.temporary}" {_AVRO}'
    )
    if live:
        # A young collection takes 5 to 15 ms however large the young generation is, so it is half of the heap, and from the start
        # on. `lake` would be no faster by it, and 0.4 GB larger.
        java_options += f" -Xms{settings.spark.driver_memory} -XX:NewRatio=1"
    master = settings.spark.master
    if live == Mode.REAL_TIME:
        # While a query takes over, two of them hold a slot for each partition.
        master = doubled(master)
    # The JVM makes none with a folder of settings on its class path, as for a cluster.
    if settings.spark.class_archives and is_local(master):
        archive = _class_archive(settings, name)
        archive.parent.mkdir(parents=True, exist_ok=True)
        # The JVM itself finds out whether the archive is of these jars, and writes it anew as it ends when it isn't.
        java_options += f' -XX:+AutoCreateSharedArchive "-XX:SharedArchiveFile={archive}" -Xlog:cds*=off'
    conf: dict[str, bool | float | int | str | None] = {
        "spark.driver.memory": settings.spark.driver_memory,
        "spark.driver.extraJavaOptions": java_options,
        "spark.executor.extraJavaOptions": _AVRO,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # What the interface would show is kept even so, 1,000 of each: so long that it ends as garbage in the old generation.
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "20",
        "spark.sql.ui.retainedExecutions": "20",
        # Dimensions are collected by a job each, of so many tasks.
        "spark.sql.leafNodeDefaultParallelism": "1",
        # Each broadcast dimension takes at least a page, and waits for the collector: by default 4 MiB for 16 rows.
        "spark.buffer.pageSize": "256k",
        "spark.python.daemon.module": "spark.runtime.workers.python_daemon",
        "spark.sql.session.timeZone": "UTC",
        # What has no value is null, as the quotient of a division by zero: to raise would stop a pipeline at that record for good.
        "spark.sql.ansi.enabled": "false",
        "spark.sql.legacy.sizeOfNull": "false",
        # A filter would go below the projections that decode, each field of its condition with a decoder of its own.
        "spark.sql.optimizer.excludedRules": ",".join(
            f"org.apache.spark.sql.catalyst.optimizer.{rule}"
            for rule in ("PushDownPredicates", "PushPredicateThroughNonJoin")
        ),
        "spark.sql.shuffle.partitions": "2",
        # Plans that never shuffle have nothing to adapt; looking for it costs each small batch 50 ms.
        "spark.sql.adaptive.enabled": "false",
        # Spark makes this folder, though all of our tables lie elsewhere; by default in the working directory.
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "headrace-warehouse"),
        # Small enough to stay in the processor's caches on its way to Python; 10,000 costs twice the time.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
        # A batch is in the memory of the JVM and of Python, in each task: the default of 64 MiB would be a fifth of the heap.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(8 << 20),
        # By which line of ours each column was made: found out by walking the stack, for every column of every batch.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.dataFrameQueryContext.enabled": "false",
        # Plans of a few hundred expressions are written out for every batch, for nobody.
        "spark.sql.maxPlanStringLength": "1000",
        # All but Kafka: through its older interface, observed metrics of a write never arrive.
        "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
        # One PUT for each file, in place of a PUT, a copy, a deletion and a handful of requests whether they worked.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
        ),
        # How long a query without records waits before it looks again; by default 10 ms, a third of a core for nothing.
        "spark.sql.streaming.pollingDelay": "50ms",
        # Longer than a record may wait for its partition (`spark.queries.real_time.query`): else a producer that still has some makes way for another one.
        "spark.kafka.producer.cache.timeout": "1h",
        "spark.sql.streaming.minBatchesToRetain": "20",
        # More than a query has between two looks at them.
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        # One more object on S3 for each file of the checkpoint, for a check that S3 does itself.
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    }
    if delta:
        conf |= _DELTA
    if jars:
        conf |= {"spark.driver.extraClassPath": jars, "spark.executor.extraClassPath": jars}
    if live == Mode.REAL_TIME:
        # A task that is tried again writes its whole interval again: a query that is started anew goes on behind what is written. `local[N]` tries none again.
        conf["spark.task.maxFailures"] = "1"
        # By default everything is collected twice an hour, 200 ms, for what Spark's own objects hold. Java does it, too, when its heap is full.
        conf["spark.cleaner.periodicGC.interval"] = "12h"
    if not is_local(master):
        for own in ("spark.driver.host", "spark.driver.bindAddress"):
            del conf[own]
    with _scratch.environment():
        spark: SparkSession = SparkSession.builder.master(master).appName(name).config(map=conf).getOrCreate()
    if not _scratch.is_held:
        # Not twice: Java closes a file that nobody knows, and whoever closes a file loses each lock on it.
        _scratch.hold(locked(spark.sparkContext, _scratch.locks))
    if not is_local(master) and not _is_encrypted(spark):
        spark.stop()
        raise ClusterUnfit(
            f"tasks take the keys of brokers and S3 along to the executors of {master}, whose connections are not "
            "encrypted: set spark.authenticate and spark.network.crypto.enabled, or spark.ssl.rpc.enabled, to true in spark-defaults.conf"
        )
    # Not in `conf`, which goes to the JVM by its command line: there are keys.
    set_hadoop_options(spark.sparkContext, _s3a(settings.s3))
    return spark


def temporary_folder() -> Path | None:
    """For files that need not outlive the process: they are removed even if it is killed. None for the system's, before there is a session."""
    return None if _scratch is None else _scratch.temporary


def is_local(master: str) -> bool:
    """Whether tasks are threads of the driver's own process."""
    return master.partition("[")[0] == "local"


def slots_of(master: str) -> int | None:
    """The N of `local[N]`; None where somebody else says how many task slots there are."""
    found = _LOCAL.match(master)
    return None if found is None or found[1] == "*" else int(found[1])


def doubled(master: str) -> str:
    """`local[N]` with twice the slots, any other one with the same. How often a task is tried is left out (`local[N,F]`): each time it would write its interval again."""
    slots = slots_of(master)
    return _LOCAL.sub(f"local[{'*' if slots is None else 2 * slots}]", master)


def _is_encrypted(spark: SparkSession) -> bool:
    """Whether the driver's connections to its executors are. Spark itself refuses `crypto` without authentication."""
    conf = spark.sparkContext.getConf()
    return any(conf.get(name, "false") == "true" for name in ("spark.ssl.rpc.enabled", "spark.network.crypto.enabled"))


def stop_session(spark: SparkSession, settings: SparkSettings, *, has_worked: bool) -> None:
    """Stop Spark, and wait for the JVM's end: it may be writing its class archive, which is kept if it `has_worked`.

    Of one that was stopped before its first rows the archive would lack most classes, and stay.
    """
    context = spark.sparkContext
    jvm, name = java_process(context), str(context.appName)
    # Whatever ended the process may have ended the JVM first.
    with suppress(Py4JError, OSError):
        spark.stop()
    if jvm is not None and jvm.stdin is not None:
        jvm.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            jvm.wait(_JVM_SECONDS)
    global _scratch
    if _scratch is not None:
        _scratch.remove()
        _scratch = None
    if settings.spark.class_archives and not has_worked:
        archive = _class_archive(settings, name)
        if archive.exists() and archive.stat().st_mtime > _BEGAN:
            archive.unlink()


@contextmanager
def while_java_lives(spark: SparkSession) -> Iterator[None]:
    """Raise QueryFailed in place of what comes of calls to a Java process that has ended meanwhile."""
    try:
        yield
    except (Py4JError, ConnectionError) as error:
        jvm = java_process(spark.sparkContext)
        with suppress(subprocess.TimeoutExpired):
            if jvm is not None and jvm.wait(_NOTICE_SECONDS) is not None:
                raise QueryFailed("Spark's Java process ended; what it said last stands above") from error
        raise


def _class_archive(settings: SparkSettings, name: str) -> Path:
    return Path(settings.spark.class_archives) / f"{name}.jsa"


def _s3a(s3: S3Settings) -> dict[str, str]:
    conf = {
        "fs.s3a.endpoint.region": s3.region,
        # We overwrite nothing under these paths, so S3A need not look before it writes.
        "fs.s3a.create.performance": "true",
        "fs.s3a.directory.marker.retention": "keep",
    }
    if s3.endpoint is not None:
        conf |= {
            "fs.s3a.endpoint": str(s3.endpoint).rstrip("/"),
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": str(s3.endpoint.scheme == "https").lower(),
        }
    if s3.access_key is not None and s3.secret_key is not None:
        conf |= {
            "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
            "fs.s3a.access.key": s3.access_key.get_secret_value(),
            "fs.s3a.secret.key": s3.secret_key.get_secret_value(),
        }
    return conf
