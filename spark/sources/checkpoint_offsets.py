"""What a Spark query's checkpoint says of its source: `CheckpointOffsets`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from contracts.servers.ranges import OffsetRange
from contracts.servers.s3 import keys, objects, s3_client
from contracts.settings import S3Settings
from spark.runtime.errors import PositionsDisagree

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_log = structlog.get_logger(__name__)

_COPIES = 8
"""At the same time."""
_STORES_OF_A_JOIN = ("left-", "right-")
"""How the folders are called that hold a partition's state of a join; others hold parts of one store."""


def checkpoint_folder(pipeline: str, target: str = "") -> str:
    """Where in the bucket the modes that take batches keep a pipeline's checkpoints, whatever topics it writes; of one with state, those of its `target`."""
    return f"checkpoints/{pipeline}/{target}" if target else f"checkpoints/{pipeline}"


class CheckpointOffsets:
    """The offsets in a Spark query's checkpoints, read without Spark."""

    def __init__(self, s3: S3Settings, prefix: str) -> None:
        """`prefix` is a folder in the bucket, without a slash at its end: that of a checkpoint, or of several."""
        self._s3: S3Client = s3_client(s3)
        self._bucket = s3.bucket
        self._prefix = prefix

    def committed(self, topic: str) -> dict[int, int]:
        """The end offsets of the last batch that Spark has committed, of several checkpoints the furthest; empty if there is none.

        Of a damaged checkpoint, what can be read: an earlier batch, or none.
        """
        return self.committed_of(topic, None)[0]

    def committed_of(self, topic: str, topic_id: str | None) -> tuple[dict[int, int], str | None]:
        """The same, without the checkpoints that were kept of a topic of this name with another id than the brokers tell: it was deleted. And that
        id, if all are of such a one.
        """
        found: dict[int, int] = {}
        others: list[str | None] = []
        for folder in self.folders():
            others.append(self._other_topic(folder, topic, topic_id))
            if others[-1] is None:
                for partition, offset in self._committed(folder, topic).items():
                    found[partition] = max(found.get(partition, 0), offset)
        return found, None if None in others else next(iter(others), None)

    def keep_topic(self, run: str, topic: str, topic_id: str) -> None:
        """Store beside the checkpoint of this name which topic it is of."""
        self.keep_note(run, f"{topic}={topic_id}")

    def _other_topic(self, folder: str, topic: str, topic_id: str | None) -> str | None:
        kept = None if topic_id is None else self.kept_note(folder.removeprefix(f"{self._prefix}/"))
        name, _, kept_id = (kept or "").partition("=")
        return kept_id if name == topic and kept_id != topic_id else None

    def folders(self) -> list[str]:
        """The folders at or below the prefix that hold a checkpoint with a batch, in the order of their numbers."""
        found = {key.partition("/offsets/")[0] for key in self._keys(self._prefix) if "/offsets/" in key}
        return sorted(found, key=lambda folder: (len(folder), folder))

    def runs(self) -> list[str]:
        """The names of the folders below the prefix that hold a checkpoint with a batch."""
        return [folder.removeprefix(f"{self._prefix}/") for folder in self.folders()]

    def last(self, run: str) -> tuple[int | None, int | None]:
        """The last batch that was planned in the checkpoint of this name, and the last that was committed; None where there is none."""
        folder = f"{self._prefix}/{run}"
        planned, committed = self._batches(f"{folder}/offsets"), self._batches(f"{folder}/commits")
        return max(planned, default=None), max(committed, default=None)

    def keep_note(self, run: str, note: str) -> None:
        """Store a text beside the checkpoint of this name, which goes with it."""
        self._s3.put_object(Bucket=self._bucket, Key=self._note(run), Body=note.encode())

    def kept_note(self, run: str) -> str | None:
        """What `keep_note` stored; None if there is nothing."""
        try:
            return self._s3.get_object(Bucket=self._bucket, Key=self._note(run))["Body"].read().decode(errors="replace")
        except self._s3.exceptions.NoSuchKey:
            return None

    def _note(self, run: str) -> str:
        return f"{self._prefix}/{run}/note"

    def has_state(self, run: str, partition: int, version: int) -> bool:
        """Whether the state of one operator's partition is stored as it is after so many batches, in all of its stores: a join has several."""
        folder = f"{self._prefix}/{run}/state/0/{partition}/"
        listed = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=folder, Delimiter="/")
        below = [each["Prefix"] for each in listed.get("CommonPrefixes", [])]
        stores = [each for each in below if each.removeprefix(folder).startswith(_STORES_OF_A_JOIN)]
        return all(self._has_version(store, version) for store in stores or [folder])

    def _has_version(self, store: str, version: int) -> bool:
        found = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=f"{store}{version}.").get("Contents", [])
        return any(each["Key"].endswith((".changelog", ".zip")) for each in found)

    def remove_behind(self, topic: str, topic_id: str | None) -> None:
        """Remove the checkpoints of all processes but the one whose last committed batch of the topic is the furthest, as `committed_of` has it."""
        taken = {
            folder: -1 if self._other_topic(folder, topic, topic_id) else sum(self._committed(folder, topic).values())
            for folder in self.folders()
        }
        for folder in sorted(taken, key=lambda folder: taken[folder])[:-1]:
            self._remove(folder)

    def remove_runs(self, runs: Iterable[str]) -> None:
        """Remove the checkpoints of these names."""
        for run in runs:
            self._remove(f"{self._prefix}/{run}")

    def forget_beginning(self, run: str) -> None:
        """Of a checkpoint without a batch, remove where it began to read: the records there may be gone by now, and Spark would fail each time."""
        # Not by `runs`: S3A leaves a marker of an empty folder, too.
        if self.last(run)[0] is None:
            self._remove(f"{self._prefix}/{run}/sources")

    def planned(self, run: str, batch: int, topics: Sequence[str]) -> tuple[list[OffsetRange], int]:
        """What a batch reads of each topic, in the order of the query's sources, and the watermark of the one before, with which its operators compare that: milliseconds since 1970, 0 of the first.

        Raises PositionsDisagree if the checkpoint does not tell.
        """
        folder = f"{self._prefix}/{run}"
        file, before = f"{folder}/offsets/{batch}", f"{folder}/offsets/{batch - 1}"
        now, then = self._whole(file, len(topics)), self._whole(before, len(topics)) if batch else []
        watermark_ms = _watermark_ms(then, before) if batch else 0
        ranges = []
        for source, topic in enumerate(topics):
            ends, starts = _offsets_in(now, file, topic), _offsets_in(then, before, topic) if batch else {}
            starts = starts or self._offsets(f"{folder}/sources/{source}/0", topic)
            if not ends or not starts:
                raise PositionsDisagree(f"the checkpoint {folder} does not tell what batch {batch} reads of {topic}")
            # A partition that was added is read from its first record on.
            ranges += [
                OffsetRange(topic, partition, starts.get(partition, 0), end) for partition, end in sorted(ends.items())
            ]
        return ranges, watermark_ms

    def watermark_ms(self, run: str, batch: int) -> int:
        """By which a batch's operators forget what is over: milliseconds since 1970, 0 before there is one. Raises PositionsDisagree if the
        checkpoint does not tell.
        """
        file = f"{self._prefix}/{run}/offsets/{batch}"
        return _watermark_ms(self._lines(file), file)

    def objects(self) -> Mapping[tuple[str, str], tuple[int, datetime]]:
        """Of everything in the checkpoints below the prefix, by the name of the checkpoint and the path in it: how many bytes, and when it was written."""
        found = objects(self._s3, self._bucket, f"{self._prefix}/")
        paths = [each["Key"].removeprefix(f"{self._prefix}/").partition("/") for each in found]
        return {
            (run, path): (each["Size"], each["LastModified"]) for (run, _, path), each in zip(paths, found, strict=True)
        }

    def copy(self, run: str, folder: Path) -> None:
        """Copy what is in the checkpoint of this name to a folder on this machine; not what is removed meanwhile."""

        def copy(path: str) -> None:
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(self._s3.exceptions.NoSuchKey):
                body = self._s3.get_object(Bucket=self._bucket, Key=f"{self._prefix}/{run}/{path}")["Body"]
                with closing(body), target.open("wb") as file:
                    shutil.copyfileobj(body, file)

        # Each is a request, and most are small.
        with ThreadPoolExecutor(_COPIES) as pool:
            list(pool.map(copy, [path for of, path in self.objects() if of == run and not path.endswith("/")]))

    def began(self, topic: str) -> dict[int, int]:
        """The offsets at which the query began to read; empty if it never did."""
        first = f"{self._prefix}/sources/0/0"
        return self._offsets(first, topic) if first in self._keys(f"{self._prefix}/sources") else {}

    def _committed(self, folder: str, topic: str) -> dict[int, int]:
        batches = self._batches(f"{folder}/commits") & self._batches(f"{folder}/offsets")
        files = (f"{folder}/offsets/{batch}" for batch in sorted(batches)[::-1])
        return next(filter(None, (self._offsets(file, topic) for file in files)), {})

    def _offsets(self, file: str, topic: str) -> dict[int, int]:
        return _offsets_in(self._lines(file), file, topic)

    def _whole(self, file: str, sources: int) -> list[bytes]:
        """The lines of a batch's offsets: version, metadata, and one of each source."""
        lines = self._lines(file)
        if len(lines) != 2 + sources:
            raise PositionsDisagree(
                f"the checkpoint's file {file} is damaged: it has {len(lines)} lines of {2 + sources}"
            )
        return lines

    def _lines(self, file: str) -> list[bytes]:
        try:
            return self._s3.get_object(Bucket=self._bucket, Key=file)["Body"].read().splitlines()
        except self._s3.exceptions.NoSuchKey as error:
            raise PositionsDisagree(f"the checkpoint lacks its file {file}") from error

    def remove(self) -> None:
        """Remove what is below the prefix; the query then starts where it is told to."""
        self._remove(self._prefix)

    def _remove(self, folder: str) -> None:
        for key in self._keys(folder):
            self._s3.delete_object(Bucket=self._bucket, Key=key)

    def _batches(self, folder: str) -> set[int]:
        names = (key.rpartition("/")[2] for key in self._keys(folder))
        return {int(name) for name in names if name.isdigit()}

    def _keys(self, folder: str) -> list[str]:
        return keys(self._s3, self._bucket, f"{folder}/")


def _watermark_ms(lines: list[bytes], file: str) -> int:
    try:
        return int(json.loads(lines[1])["batchWatermarkMs"])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise PositionsDisagree(
            f"the checkpoint's file {file} is damaged: its watermark can't be read: {error!r}"
        ) from error


def _offsets_in(lines: list[bytes], file: str, topic: str) -> dict[int, int]:
    """By partition, from a file's lines, the last of which are those of the sources; empty if it is cut short."""
    try:
        # Before them come the version and, but for a source's first offsets, metadata; a source without offsets has a dash.
        found = [json.loads(line) for line in lines[1:] if line != b"-"]
        of_topic: dict[str, int] = next(
            (each[topic] for each in found[::-1] if isinstance(each, dict) and topic in each), {}
        )
        return {int(partition): offset for partition, offset in of_topic.items()}
    except (IndexError, ValueError) as error:
        _log.warning("checkpoint damaged", file=file, error=str(error))
        return {}
