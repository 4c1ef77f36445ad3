"""`TwoBrokers`: a leader, and a follower that can be stopped, so that what is written is not replicated."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from contracts.servers.brokers import retried
from contracts.settings import KafkaSettings
from deploy.local.downloads.jars import ensure_jars
from deploy.local.processes.process import Process
from deploy.local.servers.kafka import KafkaBroker
from deploy.local.servers.ports import HOST, Ports
from tests.frozen import frozen

_SECONDS = 60


class TwoBrokers:
    """Use it in a `with`; its topics have a replica on each, and the broker that is never stopped leads them."""

    def __init__(self, directory: Path) -> None:
        jars = ensure_jars()["broker"]
        self._leader = KafkaBroker(directory / "leader", Ports.free(), jars)
        self._directory = directory / "follower"
        self._properties = self._directory / "server.properties"
        *command, _ = self._leader.process.argv
        self._follower = Process("follower", [*command, str(self._properties)], directory=self._directory)
        self.settings = KafkaSettings(bootstrap_servers=self._leader.bootstrap_servers)

    def __enter__(self) -> Self:
        try:
            self._leader.start()
            self._leader.wait_healthy()
            self._admin = AdminClient({**self.settings.client_config(), "log_level": 0})
            self._make_coordinator()
            self._start_follower()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def topic(self, partitions: int) -> str:
        """The name of a new topic."""
        name = f"t-{uuid.uuid4().hex[:8]}"
        made = self._admin.create_topics([NewTopic(name, partitions, replica_assignment=[[1, 2]] * partitions)])
        made[name].result(_SECONDS)
        self._follower.wait_until(
            lambda: all(len(each.isrs) == 2 for each in self._admin.list_topics(name).topics[name].partitions.values()),
            what=f"it was in sync with {name}",
            timeout_seconds=_SECONDS,
        )
        return name

    def ports_of_clients(self) -> set[int]:
        """Where the connections come from that the leader holds open."""
        connections = psutil.Process(self._leader.process.pid).net_connections()
        return {each.raddr.port for each in connections if each.raddr}

    @contextmanager
    def follower_stopped(self) -> Iterator[None]:
        """It goes on at the end. The cluster gives it up after nine seconds, and does without."""
        with frozen(self._follower):
            yield

    def _make_coordinator(self) -> None:
        """Have the offsets topic made while the leader is alone: no group's coordinator is ever on a broker that is stopped."""
        offset = TopicPartition("any", 0)
        with closing(Consumer({**self.settings.client_config(), "group.id": "tests", "log_level": 0})) as reader:
            retried(lambda: reader.committed([offset], timeout=_SECONDS), _SECONDS)

    def _start_follower(self) -> None:
        home = self._directory
        home.mkdir(parents=True)
        own = {
            "process.roles": "broker",
            "node.id": "2",
            "listeners": f"PLAINTEXT://{HOST}:{Ports.free().kafka}",
            "log.dirs": str(home / "data"),
        }
        own["advertised.listeners"] = own["listeners"]
        leader = _properties(self._directory.parent / "leader" / "kafka" / "server.properties")
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in {**leader, **own}.items()))
        cluster = _properties(Path(leader["log.dirs"]) / "meta.properties")["cluster.id"]
        command = self._follower.argv[: self._follower.argv.index("kafka.Kafka")]
        format_storage = ["kafka.tools.StorageTool", "format", "--cluster-id", cluster, "--config"]
        subprocess.run([*command, *format_storage, str(self._properties)], check=True, capture_output=True)
        self._follower.start()
        self._follower.wait_until(
            lambda: len(self._admin.list_topics(timeout=_SECONDS).brokers) == 2,
            what="it had joined the leader",
            timeout_seconds=_SECONDS,
        )

    def _stop(self) -> None:
        self._follower.stop(grace_seconds=0)
        self._leader.process.stop(grace_seconds=0)


def _properties(file: Path) -> dict[str, str]:
    pairs = (line.partition("=") for line in file.read_text().splitlines() if not line.startswith("#"))
    return {name: value for name, _, value in pairs}
