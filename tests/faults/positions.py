"""`Positions`: how far each hop has come, as the brokers and the bucket say, asked directly and not through the proxies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress

from confluent_kafka import KafkaException

from contracts.settings import Settings
from services.audit.broker import Broker
from services.audit.errors import CouldNotAudit
from services.audit.lake_table import LakeTable
from spark.live import SOURCE, TARGET
from spark.resume import CheckpointOffsets
from tests.faults.stage import Stage

Offsets = Mapping[int, int]
LIVE_CHECKPOINT = f"checkpoints/live/{TARGET}"
TABLE = "flights_departed_enriched"


class Positions:
    """Cheap enough to be asked some hundred times a second."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.settings: Settings = stage.stack.settings()
        self.broker = Broker(self.settings.kafka.client_config())
        self._s3 = stage.stack.s3.client()
        self._bucket = self.settings.s3.bucket

    def taken(self) -> Offsets:
        """The offsets that the group `live` has committed."""
        return self.broker.taken_in("live", SOURCE)

    def ends(self, topic: str) -> Offsets:
        """The offsets after the last records; while the broker is away, this waits for it."""
        found: list[Offsets] = []

        def answers() -> bool:
            with suppress(CouldNotAudit, KafkaException):
                found.append(self.broker.ends(topic, stable=False))
            return bool(found)

        self._stage.wait("the broker to answer", answers)
        return found[0]

    def open_records(self) -> int:
        """Offsets of the enriched topic that belong to open transactions."""
        stable, all_ = self.broker.ends(TARGET), self.broker.ends(TARGET, stable=False)
        return sum(all_[partition] - stable[partition] for partition in all_)

    def newest(self, prefix: str) -> int:
        """The greatest number that names an object under `prefix`; -1 if none does."""
        return max((int(name) for name in self.names(prefix) if name.isdigit()), default=-1)

    def names(self, prefix: str) -> list[str]:
        """The objects under `prefix`, without it."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
        return [item["Key"].removeprefix(prefix) for page in pages for item in page.get("Contents", [])]

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

    def checkpointed(self) -> Offsets:
        """The offsets up to which live's checkpoint says that batches are done."""
        return CheckpointOffsets(self.settings.s3, LIVE_CHECKPOINT).committed(SOURCE)

    def versions(self, table: str = TABLE) -> int:
        """The newest version of a lake table."""
        names = (name.removesuffix(".json") for name in self.names(f"lake/{table}/_delta_log/"))
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def landed(self, table: str, topic: str, partitions: Offsets) -> Offsets:
        """The offsets up to which a lake table has taken a topic in."""
        return LakeTable(self.settings.s3, table).positions(topic, partitions)

    def reached(self, offsets: Offsets, group: str, topic: str) -> bool:
        """Whether a group has come as far; a broker that does not answer says no."""
        try:
            found = self.broker.taken_in(group, topic)
        except (CouldNotAudit, KafkaException):
            return False
        return all(found.get(partition, 0) >= offset for partition, offset in offsets.items())


def added_files(log: bytes) -> list[str]:
    """The data files that one version of a Delta log adds."""
    actions = [json.loads(line) for line in log.splitlines() if line]
    return [action["add"]["path"] for action in actions if "add" in action]
