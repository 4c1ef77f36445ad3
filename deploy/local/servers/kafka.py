"""The Kafka broker of the local stack: one KRaft node, its own controller."""

from __future__ import annotations

import base64
import importlib.util
import subprocess
import uuid
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deploy.errors import ProcessFailed
from deploy.local.downloads.java import java_command
from deploy.local.processes.process import NotYet, Process
from deploy.local.servers.java_properties import property_value
from deploy.local.servers.ports import HOST, Ports

# One node: every internal topic has one replica. Few partitions of those, because each costs files and start-up time.
# The log cleaner's buffer is 128 MB by default, a third of this heap.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{kafka},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{kafka}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
num.partitions=1
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=8388608
"""

_LOGGING = """\
<Configuration status="error">
  <Appenders>
    <Console name="out"><PatternLayout pattern="%d{ISO8601} %-5p %c{1} %m%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="warn"><AppenderRef ref="out"/></Root>
    <Logger name="kafka.server.KafkaRaftServer" level="info"/>
    <Logger name="org.apache.kafka.server" level="info"/>
  </Loggers>
</Configuration>
"""


_LEAN = ("-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For minutes on a developer's machine: what takes least memory, and least computing for the compilers."""

_SERVING = (
    "-Xms1G",
    "-Xmx1G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""As Kafka's own start scripts have them (`bin/kafka-server-start.sh`, `bin/kafka-run-class.sh`)."""


class KafkaBroker:
    """The broker as a process; its data lie in `<directory>/kafka`. One that is not `lean` has the JVM that Kafka ships it with."""

    name = "kafka"

    def __init__(self, directory: Path, ports: Ports, jars: Path, *, lean: bool = True) -> None:
        self._home = directory / "kafka"
        self._ports = ports
        self._classpath = ":".join([*_log_binding(), f"{jars}/*"])
        self._properties = self._home / "server.properties"
        self._logging = self._home / "log4j2.xml"
        self.process = Process(
            self.name,
            [
                java_command(),
                *(_LEAN if lean else _SERVING),
                "-XX:+ExitOnOutOfMemoryError",
                f"-Dlog4j2.configurationFile={self._logging}",
                "-cp",
                self._classpath,
                "kafka.Kafka",
                str(self._properties),
            ],
            directory=directory,
        )

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect."""
        return f"{HOST}:{self._ports.kafka}"

    def start(self) -> None:
        """Start it, after formatting its storage the first time; raises ProcessFailed when that fails."""
        self._home.mkdir(parents=True, exist_ok=True)
        data = self._home / "data"
        self._logging.write_text(_LOGGING)
        self._properties.write_text(
            _PROPERTIES.format(
                host=HOST, kafka=self._ports.kafka, controller=self._ports.controller, data=property_value(str(data))
            )
        )
        if not (data / "meta.properties").exists():
            self._format_storage()
        self.process.start()

    def wait_healthy(self, timeout_seconds: float = 60) -> None:
        """Wait until it answers a metadata request; raises ProcessFailed."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

        def answers() -> bool:
            try:
                if admin.list_topics(timeout=1).brokers:
                    return True
            except KafkaException as error:
                raise NotYet(error.args[0].str()) from error
            raise NotYet("it names no broker, so its controller has fenced it")

        self.process.wait_until(answers, what="it answered a metadata request", timeout_seconds=timeout_seconds)

    def _format_storage(self) -> None:
        # A cluster id is a UUID in URL-safe base64 without padding; a leading "-" would be read as an option.
        cluster = "H" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        command = [java_command(), "-XX:TieredStopAtLevel=1", "-cp", self._classpath, "kafka.tools.StorageTool"]
        command += ["format", "--cluster-id", cluster, "--config", str(self._properties)]
        finished = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if finished.returncode != 0:
            raise ProcessFailed(f"Kafka's storage couldn't be formatted in {self._home}: {finished.stdout.strip()}")


def _log_binding() -> list[str]:
    """The broker's jars hold no binding from its logging interface to log4j; PySpark's do, and serve here too."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return []
    jars = Path(spec.origin).parent / "jars"
    return [str(jar) for pattern in ("slf4j-api-*.jar", "log4j-slf4j2-impl-*.jar") for jar in jars.glob(pattern)]
