"""Who takes part: `CONTENDERS`, and each as a process on a stack."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from contracts import topics
from contracts.definitions.catalog import load_catalog
from contracts.servers.registry import Registry
from contracts.settings import Settings
from deploy.local.downloads.jars import ensure_jars
from deploy.local.downloads.java import java_home
from deploy.local.processes.deployable import ROOT, deployables
from deploy.local.processes.process import Process
from deploy.local.servers.stack import LocalStack
from spark.runtime.mode import Mode
from tests.bench.measuring.hop import grown
from tests.bench.peers.dimensions import write_dimensions
from tests.bench.peers.environment import LOCKS, peer_python
from tests.bench.peers.errors import UnknownContender
from tests.bench.peers.lookup_database import make_lookup_database
from tests.bench.peers.programs.task import Task
from tests.bench.peers.rows import FIELDS

SOURCE = topics.FLIGHTS_DEPARTED.name
ENRICHED = topics.FLIGHTS_DEPARTED_ENRICHED.name
JARS = LOCKS / "jars.txt"


@dataclass(frozen=True, slots=True)
class Stage:
    """A filled stack, and a folder with what contenders need beside it."""

    stack: LocalStack
    env: dict[str, str]
    settings: Settings
    folder: Path
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Contender:
    """One who enriches. `program` is the module of a peer, none for `live`, whose `mode` is another name of the guarantee.

    A peer that is not `tuned` has the settings that its makers chose.
    """

    name: str
    exactly_once: bool
    program: str = ""
    mode: Mode | None = None
    tuned: bool = True

    @property
    def target(self) -> str:
        """The topic that it writes."""
        return ENRICHED if self.mode else f"peers.{self.name}.v1"

    def process(self, stage: Stage, *, low_latency: bool) -> Process:
        """It as a process, not yet started; its topic is there, and all that it needs. Raises what `fetch` does."""
        if self.mode is not None:
            env = stage.env | {"HEADRACE_LIVE__MODE": self.mode}
            return Process(
                self.name,
                [sys.executable, "-m", *deployables().named("live").command],
                directory=stage.stack.directory,
                env=env,
            )
        _create_topic(stage.settings, self.target)
        work = stage.folder / self.name
        work.mkdir()
        python, jars = _FETCH[self.program](stage.say)
        if self.program == "flink_sql":
            make_lookup_database(work / "dimensions", dimension_folder(stage), jars)
        task = Task(
            brokers=stage.settings.kafka.bootstrap_servers,
            registry=str(stage.settings.registry.url),
            source=SOURCE,
            target=self.target,
            group=self.target,
            exactly_once=self.exactly_once,
            low_latency=low_latency,
            tuned=self.tuned,
            dimensions=str(dimension_folder(stage)),
            work=str(work),
            jars=jars,
            source_schema=load_catalog().schema(SOURCE),
            target_schema=target_schema(),
            target_schema_id=self._schema_id(stage.settings),
        )
        command = [str(python), "-m", f"tests.bench.peers.programs.{self.program}", task.argument()]
        env = {
            "PYTHONPATH": str(ROOT),
            "JAVA_HOME": str(java_home()),
            "FLINK_LOG_DIR": str(work),
            "JVM_ARGS": f"-Dderby.stream.error.file={work}/derby.log",
        }
        return Process(self.name, command, directory=stage.stack.directory, env=env)

    def fetch(self, say: Callable[[str], None]) -> None:
        """Have everything that must be downloaded for it. Raises PeerUnavailable, JarsUnavailable."""
        if self.program:
            _FETCH[self.program](say)

    def rows_out(self, stage: Stage) -> Callable[[], int]:
        """How many records of its a reader of committed ones may see, and the few dozen markers of transactions with them.

        Not by its group's offsets: Flink commits those up to ten seconds after the rows. Its topic must be there.
        """
        return grown(stage.settings, self.target)

    def _schema_id(self, settings: Settings) -> int:
        """Only Spark is told an id; the others register what they write."""
        if self.program != "spark_textbook":
            return 0
        with Registry(settings.registry) as registry:
            return registry.register(f"{self.target}-value", target_schema())


CONTENDERS = (
    Contender("headrace-exactly-once", exactly_once=True, mode=Mode.EXACTLY_ONCE),
    Contender("headrace-at-least-once", exactly_once=False, mode=Mode.AT_LEAST_ONCE),
    Contender("headrace-real-time", exactly_once=False, mode=Mode.REAL_TIME),
    Contender("spark-textbook", exactly_once=False, program="spark_textbook"),
    Contender("flink-exactly-once", exactly_once=True, program="flink_sql"),
    Contender("flink-at-least-once", exactly_once=False, program="flink_sql"),
    Contender("flink-untuned-exactly-once", exactly_once=True, program="flink_sql", tuned=False),
    Contender("flink-untuned-at-least-once", exactly_once=False, program="flink_sql", tuned=False),
    Contender("quix-exactly-once", exactly_once=True, program="quix_dataframe"),
    Contender("quix-at-least-once", exactly_once=False, program="quix_dataframe"),
)


def chosen(names: Sequence[str]) -> list[Contender]:
    """Those of these names, in the order of `CONTENDERS`; all if none is named. Raises UnknownContender."""
    known = [each.name for each in CONTENDERS]
    for name in names:
        if name not in known:
            raise UnknownContender(f"nobody is called {name}: choose of {', '.join(known)}.")
    return [each for each in CONTENDERS if not names or each.name in names]


def target_schema() -> str:
    """The enriched event's schema without the fields that only Headrace writes, as JSON text."""
    schema: dict[str, Any] = json.loads(load_catalog().schema(ENRICHED))
    return json.dumps(schema | {"fields": [field for field in schema["fields"] if field["name"] in FIELDS]})


def dimension_folder(stage: Stage) -> Path:
    """The folder of the dimensions, made when it isn't there."""
    folder = stage.folder / "dimensions"
    if not folder.exists():
        write_dimensions(folder)
    return folder


def _spark(say: Callable[[str], None]) -> tuple[Path, list[str]]:
    return Path(sys.executable), [f"{ensure_jars(['spark'], say=say)['spark']}/*"]


def _flink(say: Callable[[str], None]) -> tuple[Path, list[str]]:
    folders = ensure_jars(["flink", "derby"], lock=JARS, say=say)
    return peer_python("flink", say), [str(jar) for folder in folders.values() for jar in sorted(folder.glob("*.jar"))]


def _quix(say: Callable[[str], None]) -> tuple[Path, list[str]]:
    return peer_python("quix", say), []


_FETCH: dict[str, Callable[[Callable[[str], None]], tuple[Path, list[str]]]] = {
    "spark_textbook": _spark,
    "flink_sql": _flink,
    "quix_dataframe": _quix,
}
"""The Python of each program, and its jars."""


def _create_topic(settings: Settings, topic: str) -> None:
    admin = AdminClient({**settings.kafka.client_config(), "log_level": 0})
    partitions = load_catalog().topic(ENRICHED).partitions
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(30)
