"""`State`: how far the last clean audit has come, kept in the bucket beside what it is about."""

from __future__ import annotations

from typing import Any

from pyarrow import fs
from pydantic import BaseModel, ConfigDict, ValidationError

from contracts.settings import S3Settings
from services.audit.errors import CouldNotAudit
from services.audit.sources.s3 import file_system

KEY = "audit/last-clean.json"


class Audited(BaseModel):
    """A topic, by partition: `ends` is the offset up to which it was audited, `resume` the first one to read again.

    `topic_id` is the broker's: a topic that was made anew was never audited.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    topic_id: str
    ends: dict[int, int]
    resume: dict[int, int] = {}


class Paired(BaseModel):
    """What was seen of a join, or of distinct events: the records of the run that began at `begun_ms`, milliseconds since 1970, and whether an earlier one
    had written some, too. `open`, by topic and partition: the first offset of raw records that may have pairs to come, and of what was made that the next
    audit has to know. `newest`: of each raw topic the event time, in microseconds since 1970, that no record before the ends goes beyond.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    begun_ms: int
    is_rebuilt: bool
    open: dict[str, dict[int, int]]
    newest: tuple[int, ...]


class Ranked(BaseModel):
    """What was counted of a list: of which `run` of its pipeline, what the rankings file had `told`, as a hash, and the totals of the raw records before
    the ends, as `Totals.rows` has them; None if no audit can know those of this run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    told: str
    totals: list[list[Any]] | None


class State(BaseModel):
    """What an audit that found nothing wrong leaves behind. `rows`: of each table, those of records before the ends. `newest`: for each
    aggregate the event time, in microseconds since 1970, that no raw record before the ends goes beyond. `runs`: which run of its pipeline had counted, empty where nothing told.
    `pairs`: the same for joins and distinct events, and more; `rankings`: the same for lists.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: str
    topics: dict[str, Audited]
    rows: dict[str, int] = {}
    newest: dict[str, int] = {}
    runs: dict[str, str] = {}
    pairs: dict[str, Paired] = {}
    rankings: dict[str, Ranked] = {}


def load(s3: S3Settings) -> State | None:
    """The last clean audit's; None if there is none. Raises CouldNotAudit if it is not readable."""
    system, path = file_system(s3), f"{s3.bucket}/{KEY}"
    try:
        if system.get_file_info(path).type == fs.FileType.NotFound:
            return None
        with system.open_input_stream(path) as stream:
            return State.model_validate_json(stream.read())
    except ValidationError as error:
        raise CouldNotAudit(
            f"{path} is not what an audit leaves behind: run with --full, which writes it anew"
        ) from error
    except OSError as error:
        raise CouldNotAudit(f"{path} can't be read: {error}") from error


def save(s3: S3Settings, state: State) -> None:
    """Put it in place of the last one. Raises CouldNotAudit."""
    path = f"{s3.bucket}/{KEY}"
    try:
        with file_system(s3).open_output_stream(path) as stream:
            stream.write(state.model_dump_json(indent=1).encode())
    except OSError as error:
        raise CouldNotAudit(f"{path} can't be written: {error}") from error
