"""A workload as a process of Apache Flink.

Which settings, and who advises them; those of object reuse, of the producer and of its transactions are the same, and have the same reasons, as
in `tests.bench.peers.programs.flink_sql`:

* `table.exec.mini-batch.*`: Flink's documentation, "Performance Tuning" (MiniBatch Aggregation). A second, as the checkpoints. With it the
  grouping adds up before the shuffle ("Local-Global Aggregation"). The window aggregation does so by itself.
* `table.exec.sink.upsert-materialize` NONE: the key of the sink is made of the keys of the grouping, so nothing of a key can come in another
  order, and the state that AUTO adds for that is needless work ("Configuration").
* State: `hashmap`, on the heap, is the default and the faster one; `rocksdb` with incremental checkpoints holds more than the memory does, as
  Headrace's does ("State Backends").
* Checkpoints once a second into a local folder, which is less work than Headrace's object store.
* Parallelism: as many as a raw topic has partitions, which is as many tasks as Headrace has.
* The source names the columns that are needed, so the others are not decoded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from contracts.definitions.catalog import load_catalog
from contracts.settings import Settings
from deploy.local.downloads.jars import ensure_jars
from deploy.local.downloads.java import java_home
from deploy.local.processes.deployable import ROOT
from deploy.local.processes.process import Process
from deploy.local.servers.stack import LocalStack
from tests.bench.peers.contender import JARS
from tests.bench.peers.environment import peer_python
from tests.bench.state.workloads.workload import Source, Workload


def fetch(say: Callable[[str], None]) -> tuple[Path, list[str]]:
    """Flink's Python and its jars. Raises PeerUnavailable, JarsUnavailable."""
    folder = ensure_jars(["flink"], lock=JARS, say=say)["flink"]
    return peer_python("flink", say), [str(jar) for jar in sorted(folder.glob("*.jar"))]


def flink_process(
    name: str,
    workload: Workload,
    target: str,
    backend: str,
    stack: LocalStack,
    settings: Settings,
    say: Callable[[str], None],
) -> Process:
    """It with this state backend, not yet started; its topic `target` is made."""
    python, jars = fetch(say)
    work = stack.directory / "peers" / target
    work.mkdir(parents=True)
    admin = AdminClient({**settings.kafka.client_config(), "log_level": 0})
    partitions = load_catalog().topic(workload.target).partitions
    admin.create_topics([NewTopic(target, partitions)])[target].result(30)
    given = {
        "options": {
            "pipeline.jars": ";".join(f"file://{jar}" for jar in jars),
            "pipeline.object-reuse": "true",
            "parallelism.default": str(
                max(load_catalog().topic(source.topic).partitions for source in workload.sources)
            ),
            "execution.checkpointing.interval": "1 s",
            "execution.checkpointing.dir": f"file://{work}/checkpoints",
            "execution.checkpointing.mode": "EXACTLY_ONCE",
            "execution.checkpointing.incremental": "true",
            "state.backend.type": backend,
            "table.local-time-zone": "UTC",
            "table.exec.mini-batch.enabled": "true",
            "table.exec.mini-batch.allow-latency": "1 s",
            "table.exec.mini-batch.size": "20000",
            "table.exec.sink.upsert-materialize": "NONE",
        },
        "tables": [
            *[_source(source, workload.target, target, settings) for source in workload.sources],
            _sink(workload, target, settings),
        ],
        "inserts": [f"INSERT INTO made {workload.select}"],
    }
    command = [str(python), "-m", "tests.bench.peers.programs.flink_statements", json.dumps(given)]
    env = {"PYTHONPATH": str(ROOT), "JAVA_HOME": str(java_home()), "FLINK_LOG_DIR": str(work)}
    return Process(name, command, directory=stack.directory, env=env)


def _source(source: Source, made: str, group: str, settings: Settings) -> str:
    """`made` is Headrace's topic, whose contract says how late an event may be."""
    catalog = load_catalog()
    derivation, occurred_at = catalog.topic(made).derivation, catalog.topic(source.topic).occurred_at
    assert derivation is not None and derivation.late_after_minutes is not None
    hours, minutes = divmod(derivation.late_after_minutes, 60)
    options = {
        **_kafka(source.topic, settings),
        "connector": "kafka",
        "properties.group.id": group,
        "properties.isolation.level": "read_committed",
        "scan.startup.mode": "earliest-offset",
        "format": "avro-confluent",
        "avro-confluent.url": str(settings.registry.url),
    }
    return f"""CREATE TABLE {source.table} (
    {source.columns},
    WATERMARK FOR {occurred_at} AS {occurred_at} - INTERVAL '{hours}:{minutes}' HOUR TO MINUTE
) WITH ({_options(options)})"""


def _sink(workload: Workload, target: str, settings: Settings) -> str:
    key = workload.columns.split()[0]
    options = {
        **_kafka(target, settings),
        "connector": "upsert-kafka" if workload.updates else "kafka",
        "key.format": "raw",
        "value.format": "avro-confluent",
        "value.avro-confluent.url": str(settings.registry.url),
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": target,
        "sink.transaction-naming-strategy": "POOLING",
        "properties.transaction.timeout.ms": "900000",
        "properties.compression.type": "lz4",
        "properties.batch.size": str(256 << 10),
        "properties.linger.ms": "5",
    }
    if not workload.updates:
        options["key.fields"] = key
    primary = f", PRIMARY KEY ({key}) NOT ENFORCED" if workload.updates else ""
    return f"CREATE TABLE made ({workload.columns}{primary}) WITH ({_options(options)})"


def _kafka(topic: str, settings: Settings) -> dict[str, str]:
    return {"topic": topic, "properties.bootstrap.servers": settings.kafka.bootstrap_servers}


def _options(options: Mapping[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
