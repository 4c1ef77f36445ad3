"""`Positions`: how far each hop has come, as the brokers and the bucket say, asked directly and not through the proxies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from contracts.servers.registry import Registry
from contracts.servers.s3 import keys, s3_client
from contracts.settings import Settings
from deploy.local.servers.stack import LocalStack
from services.audit.errors import CouldNotAudit
from services.audit.sources.broker import Broker
from services.audit.sources.lake_table import LakeTable
from services.audit.sources.state_position import state_position
from spark.pipelines import load
from spark.sinks.kafka.transaction import committed_offsets
from spark.sources.checkpoint_offsets import CheckpointOffsets, checkpoint_folder
from tests.faults.stage.cast import PIPELINE
from tests.faults.stage.load import TABLE

Offsets = Mapping[int, int]
LIVE = load(PIPELINE)
"""The pipeline whose hops are watched."""
SOURCE, TARGET = LIVE.source, LIVE.target
_LIVE_CHECKPOINTS = checkpoint_folder(PIPELINE)


class Positions:
    """Cheap enough to be asked some hundred times a second."""

    def __init__(self, stack: LocalStack) -> None:
        self.settings: Settings = stack.settings()
        self.broker = Broker(self.settings.kafka.client_config())
        # Brokers that don't answer are what it is about, and no news.
        kafka = {**self.settings.kafka.client_config(), "log_level": 0}
        self._group = Consumer({**kafka, "group.id": PIPELINE})
        self._committed = Consumer({**kafka, "group.id": "witness", "isolation.level": "read_committed"})
        self._all = Consumer({**kafka, "group.id": "witness", "isolation.level": "read_uncommitted"})
        self._partitions: dict[str, list[int]] = {}
        self._state_groups: dict[str, Consumer] = {}
        self.registry = Registry(self.settings.registry)
        self._s3 = s3_client(self.settings.s3)
        self._bucket = self.settings.s3.bucket
        self._data = stack.directory / "s3" / "data" / self._bucket

    def close(self) -> None:
        """Close the clients."""
        for client in (self._group, self._committed, self._all, *self._state_groups.values()):
            client.close()
        self.registry.close()

    def taken(self) -> Offsets:
        """The offsets that the pipeline's group has committed."""
        return {p: at or 0 for p, at in committed_offsets(self._group, SOURCE, self._partitions_of(SOURCE)).items()}

    def answers(self) -> bool:
        """Whether the broker does."""
        with suppress(CouldNotAudit, KafkaException):
            return bool(self.broker.ends(SOURCE))
        return False

    def open_in(self, topic: str = TARGET) -> Offsets:
        """How many offsets of each partition of a target belong to open transactions."""
        places = [TopicPartition(topic, partition) for partition in self._partitions_of(topic)]
        ends = [self._all.get_watermark_offsets(each, timeout=10)[1] for each in places]
        # A reader of committed records is told the end of what is stable; asked last, so that none is taken for open that
        # was committed in between.
        stable = [self._committed.get_watermark_offsets(each, timeout=10)[1] for each in places]
        return {each.partition: max(0, end - upto) for each, end, upto in zip(places, ends, stable, strict=True)}

    def open_records(self, topic: str = TARGET) -> int:
        """How many offsets of a target belong to open transactions."""
        return sum(self.open_in(topic).values())

    def newest(self, prefix: str) -> int:
        """The greatest number that names an object under `prefix`; -1 if none does."""
        return max((int(name) for name in self.names(prefix) if name.isdigit()), default=-1)

    def names(self, prefix: str) -> list[str]:
        """The objects under `prefix`, without it."""
        return [key.removeprefix(prefix) for key in keys(self._s3, self._bucket, prefix)]

    def read(self, key: str) -> bytes:
        """An object."""
        content: bytes = self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        return content

    def write(self, key: str, content: bytes) -> None:
        """Put an object in place of what is there."""
        self._s3.put_object(Bucket=self._bucket, Key=key, Body=content)

    def remove(self, key: str) -> None:
        """Delete an object."""
        self._s3.delete_object(Bucket=self._bucket, Key=key)

    def live_checkpoint(self) -> str:
        """The folder of live's checkpoint: that of the process that started last."""
        return self.checkpoint(_LIVE_CHECKPOINTS)

    def checkpoint(self, folder: str) -> str:
        """That of the process that started last, of the checkpoints below `folder`; `folder` if there is none."""
        return [folder, *CheckpointOffsets(self.settings.s3, folder).folders()][-1]

    def version(self, table: str = TABLE) -> int:
        """The newest version of a lake table."""
        return max((int(path.stem) for path in (self._folder(table) / "_delta_log").glob("*.json")), default=-1)

    def data_files(self, table: str = TABLE) -> set[str]:
        """The data files of a lake table, committed or not, as paths below it."""
        folder = self._folder(table)
        found = {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}
        return {path for path in found if not path.startswith("_delta_log/")}

    def landed(self, table: str, topic: str, partitions: Offsets) -> Offsets:
        """The offsets up to which a lake table has taken a topic in."""
        return LakeTable(self.settings.s3, table).positions(topic, partitions)

    def has_landed(self, table: str, topic: str, ends: Offsets) -> bool:
        """Whether a lake table has taken a topic in up to these ends."""
        taken = self.landed(table, topic, ends)
        return all(taken.get(partition, 0) >= end for partition, end in ends.items())

    def reached(self, offsets: Offsets, group: str, topic: str) -> bool:
        """Whether a group has come as far; a broker that does not answer says no."""
        try:
            found = self.broker.taken_in(group, topic)
        except (CouldNotAudit, KafkaException):
            return False
        return all(found.get(partition, 0) >= offset for partition, offset in offsets.items())

    def states(self, pipeline: str) -> Offsets:
        """How many batches each state partition of an aggregate has written."""
        target = load(pipeline).target
        if pipeline not in self._state_groups:
            # One that reads committed offsets only would wait for the transaction that is open.
            kafka = {**self.settings.kafka.client_config(), "log_level": 0, "isolation.level": "read_uncommitted"}
            self._state_groups[pipeline] = Consumer({**kafka, "group.id": f"{pipeline}.state"})
        found = committed_offsets(self._state_groups[pipeline], target, self._partitions_of(target))
        return {partition: at or 0 for partition, at in found.items()}

    def state_checkpoint(self, pipeline: str) -> str:
        """The folder of an aggregate's checkpoint."""
        return self.checkpoint(checkpoint_folder(pipeline, load(pipeline).target))

    def has_counted(self, pipeline: str, offsets: Offsets) -> bool:
        """Whether an aggregate's groups, and what it sets aside, have come as far."""
        try:
            found = state_position(self.broker, self.settings.s3, pipeline, load(pipeline).target)
        except CouldNotAudit:
            return False
        taken = {} if found is None else found.taken.get(SOURCE, {})
        counted = found is not None and all(taken.get(partition, 0) >= offset for partition, offset in offsets.items())
        return counted and self.reached(offsets, pipeline, SOURCE)

    def _partitions_of(self, topic: str) -> list[int]:
        if topic not in self._partitions:
            self._partitions[topic] = sorted(self._all.list_topics(topic, timeout=30).topics[topic].partitions)
        return self._partitions[topic]

    def _folder(self, table: str) -> Path:
        # In the S3 server's own folder: asking the server takes longer than what is to be caught.
        return self._data / "lake" / table


def added_files(log: bytes) -> list[str]:
    """The data files that one version of a Delta log adds."""
    actions = [json.loads(line) for line in log.splitlines() if line]
    return [action["add"]["path"] for action in actions if "add" in action]
