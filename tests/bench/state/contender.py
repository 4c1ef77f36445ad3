"""Who does a workload: `CONTENDERS`, each as a process on a stack."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient

from contracts.definitions.catalog import load_catalog
from contracts.servers.provision import create_topics
from contracts.settings import Settings
from deploy.local.processes.deployable import deployables
from deploy.local.processes.process import Process
from deploy.local.servers.stack import LocalStack
from spark.sources.checkpoint_offsets import CheckpointOffsets
from tests.bench.peers.errors import UnknownContender
from tests.bench.state.flink import fetch, flink_process
from tests.bench.state.workloads.workload import Workload

HEADRACE = "headrace"
_BATCH_EVENTS = 100_000
"""So a batch takes about a second, as the others' checkpoints."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stack with the backlog."""

    stack: LocalStack
    env: dict[str, str]
    settings: Settings
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Contender:
    """One who keeps state, exactly once; `backend` is a state backend of Flink, none of Headrace's."""

    name: str
    backend: str = ""

    def fetch(self, say: Callable[[str], None]) -> None:
        """Have everything that must be downloaded for it. Raises PeerUnavailable, JarsUnavailable."""
        if self.backend:
            fetch(say)

    def process(self, workload: Workload, target: str, stage: Stage) -> Process:
        """It as a process, not yet started; the topic `target` is there."""
        if self.backend:
            return flink_process(self.name, workload, target, self.backend, stage.stack, stage.settings, stage.say)
        command = deployables().live([workload.pipeline]).command
        env = {"HEADRACE_LIVE__MAX_OFFSETS_PER_TRIGGER": str(_BATCH_EVENTS // len(workload.sources)), **stage.env}
        return Process(self.name, [sys.executable, "-m", *command], directory=stage.stack.directory, env=env)

    def target(self, workload: Workload, turn: int) -> str:
        """The topic that it writes."""
        return f"peers.{self.name}.{workload.name}.{turn}.v1" if self.backend else workload.target

    def forget(self, workload: Workload, stage: Stage) -> None:
        """The next process begins with the first record."""
        if self.backend:
            return
        CheckpointOffsets(stage.settings.s3, f"checkpoints/{workload.pipeline}/{workload.target}").remove()
        # Kept: its answers end with it.
        admin = AdminClient({**stage.settings.kafka.client_config()})
        for group in admin.delete_consumer_groups([workload.pipeline, f"{workload.pipeline}.state"]).values():
            group.result(30)
        # If it had had records, the next one would ask what has become of the run that wrote them.
        for topic in admin.delete_topics([workload.target], operation_timeout=30).values():
            topic.result(30)
        create_topics(stage.settings, load_catalog())


CONTENDERS = (Contender(HEADRACE), Contender("flink", "hashmap"), Contender("flink-rocksdb", "rocksdb"))


def chosen(names: Sequence[str]) -> list[Contender]:
    """Those of these names, in the order of `CONTENDERS`; all if none is named. Raises UnknownContender."""
    known = [each.name for each in CONTENDERS]
    for name in names:
        if name not in known:
            raise UnknownContender(f"nobody is called {name}: choose of {', '.join(known)}.")
    return [each for each in CONTENDERS if not names or each.name in names]
