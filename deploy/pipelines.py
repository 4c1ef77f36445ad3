"""The pipelines: which ones a stack is to run, and what they do at present."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from contracts.definitions.catalog import Catalog
from contracts.definitions.pipelines import declared_pipelines, pipeline_files
from contracts.servers.s3 import s3_client
from contracts.settings import S3Settings, Settings
from deploy.dead_letter_text import aligned
from deploy.errors import DeployError
from deploy.local.processes.deployable import deployables
from services.audit.errors import CouldNotAudit
from services.audit.sources.broker import Broker
from spark.runtime.settings import LiveSettings


def chosen_pipelines(text: str | None, live: LiveSettings) -> tuple[str, ...]:
    """By names with commas between, or `all`; those that run by default of None. Raises DeployError."""
    if live.ends:
        raise DeployError(
            "HEADRACE_LIVE__TRIGGER=available-now ends a pipeline when it has taken what is there, and `up` keeps it running: leave the "
            "setting out, and set it for `python -m spark run NAME` alone."
        )
    known = tuple(pipeline_files())
    if text is None:
        return deployables().pipelines
    chosen = known if text == "all" else tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if unknown := [name for name in chosen if name not in known]:
        raise DeployError(f"There is no pipeline {', '.join(unknown)}; there are {', '.join(known)}.")
    if len(chosen) > 1 and (fault := live.fault_of_several()):
        raise DeployError(
            f"{fault[0].upper()}{fault[1:]}: name one by --pipelines, and run `python -m spark run NAME` for each other one."
        )
    return chosen


@dataclass(frozen=True, slots=True)
class PipelineState:
    """A pipeline, and, where brokers and store were asked, who runs it (None: nobody) and its lag in records (None: not known). `joins` is the
    second topic that it reads, `writes` has more than one of a branch.
    """

    name: str
    reads: str
    writes: tuple[str, ...]
    records: str
    holder: str | None = None
    lag: int | None = None
    second: str | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """All that it reads."""
        return (self.reads,) if self.second is None else (self.reads, self.second)


def pipelines(catalog: Catalog) -> list[PipelineState]:
    """What their files and the contracts say. Raises DeployError if these do not fit together."""
    by_constant = catalog.by_constant
    declared, wrong = declared_pipelines()
    problems = [str(each) for each in wrong]
    found = []
    for each in declared:
        raw, derived = by_constant.get(each.reads), [by_constant.get(constant) for constant in each.writes]
        made = [topic for topic in derived if topic is not None and topic.derivation is not None]
        if raw is None or len(made) < len(derived):
            problems.append(f"{each.file} and the contracts disagree")
            continue
        of = made[0].derivation
        assert of is not None
        writes = tuple(topic.name for topic in made)
        found.append(PipelineState(each.name, raw.name, writes, of.records, second=of.second))
    if problems:
        raise DeployError(f"{'; '.join(problems)}: `headrace contracts check` says more.")
    return found


def running(settings: Settings, states: Sequence[PipelineState]) -> list[PipelineState]:
    """The same, with what brokers and store say now. Raises DeployError if they do not answer."""
    broker = Broker(settings.kafka.client_config())
    found = []
    for each in states:
        try:
            lag = sum(_lag(broker, each.name, topic) for topic in each.inputs)
            holder = _holder(settings.s3, f"leases/{each.name}/")
        except CouldNotAudit as error:
            raise DeployError(str(error)) from error
        except (BotoCoreError, ClientError) as error:
            raise DeployError(f"the store at {settings.s3.endpoint} says: {error}") from error
        found.append(replace(each, holder=holder, lag=lag))
    return found


def lines(states: Sequence[PipelineState], *, asked: bool) -> Iterator[str]:
    """A table."""
    heads = ["pipeline", "reads", "records", "writes", *(["lag", "run by"] if asked else [])]
    rows = [heads]
    for each in states:
        of_now = [f"{each.lag:,}", each.holder or "nobody"] if asked else []
        rows.append([each.name, " + ".join(each.inputs), each.records, " or ".join(each.writes), *of_now])
    return aligned(rows)


def as_json(states: Sequence[PipelineState]) -> list[dict[str, Any]]:
    """One object each."""
    return [asdict(each) for each in states]


def _lag(broker: Broker, group: str, topic: str) -> int:
    ends, taken = broker.ends(topic), broker.taken_in(group, topic)
    return sum(max(0, end - taken.get(partition, 0)) for partition, end in ends.items())


def _holder(s3: S3Settings, prefix: str) -> str | None:
    """Whoever holds the lease: a host and a process id. None if it was given back, or has not been renewed for as long as it lasts."""
    client = s3_client(s3)
    found = client.list_objects_v2(Bucket=s3.bucket, Prefix=prefix)
    epochs = [each for each in found.get("Contents", []) if each["Key"].rpartition("/")[2].isdigit()]
    if not epochs:
        return None
    newest = max(epochs, key=lambda each: int(each["Key"].rpartition("/")[2]))
    answer = client.get_object(Bucket=s3.bucket, Key=newest["Key"])
    try:
        said = dict(json.loads(answer["Body"].read()))
    except ValueError:
        return None
    now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    silent = (now - answer["LastModified"]).total_seconds()
    is_over = silent > float(said.get("seconds", 0)) + 1  # HTTP's dates are whole seconds
    return None if said.get("released") or is_over else str(said.get("holder"))
