"""`DecodingLog`: by which schemas the records of a batch were decoded."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from contracts.servers.s3 import keys, s3_client
from contracts.settings import S3Settings
from spark.records.schemas import WriterSchemas

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_NAME = re.compile(r"(\d+)(?:\.(\d+))?")
"""Of an object: the batch, and the epoch of the lease."""


class DecodingLog:
    """A batch that was cut off must be decoded again as it was, though the registry may know more by then: part of it is written.

    Each holder of the lease writes objects of its own `epoch`, and the newest epoch counts: a predecessor that wakes changes nothing.
    """

    def __init__(self, s3: S3Settings, folder: str, epoch: int) -> None:
        self._s3: S3Client = s3_client(s3)
        self._bucket, self._folder, self._epoch = s3.bucket, folder, epoch

    def keep(self, batch: int, schemas: WriterSchemas) -> None:
        """From this batch on, records are decoded so."""
        foreign = None if schemas.foreign is None else sorted(schemas.foreign)
        writers = {str(number): each for number, each in schemas.writers.items()}
        said = json.dumps({"writers": writers, "foreign": foreign, "most_bytes": schemas.most_bytes})
        self._s3.put_object(Bucket=self._bucket, Key=f"{self._folder}/{batch}.{self._epoch}", Body=said.encode())

    def of(self, batch: int, schemas: WriterSchemas) -> WriterSchemas | None:
        """As the records of this batch were decoded, otherwise like `schemas`; None if nothing is kept."""
        found = {
            (int(name[1]), int(name[2] or 0)): key
            for key in keys(self._s3, self._bucket, f"{self._folder}/")
            if (name := _NAME.fullmatch(key.rpartition("/")[2])) and int(name[1]) <= batch
        }
        if not found:
            return None
        key = found[max(found)]
        said = json.loads(self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read())
        foreign = None if said["foreign"] is None else frozenset(said["foreign"])
        writers = {int(number): each for number, each in said["writers"].items()}
        return replace(schemas, writers=writers, foreign=foreign, most_bytes=said["most_bytes"])
