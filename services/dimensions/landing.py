"""`Landing`: the place in the bucket where others put source files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import blake2b

from botocore.exceptions import BotoCoreError, ClientError

from contracts.servers.s3 import objects, s3_client
from contracts.settings import S3Settings
from services.dimensions.errors import Overtaken
from services.dimensions.rejected import Rejected

PREFIX = "landing/dimensions/"
REJECTED_PREFIX = "landing/rejected/"

_REASON = ".reason.json"
_NAME_BYTES = 150
"""Of a file that is set aside, beside a time and a digest: an object store on a file system takes 255 for a part of a key, S3 1,024
for the whole.
"""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One object under the landing prefix; `etag` changes with its content."""

    key: str
    etag: str
    size_bytes: int
    uploaded_at: datetime

    @property
    def name(self) -> str:
        """The key below the prefix."""
        return self.key.removeprefix(PREFIX)


@dataclass(frozen=True, slots=True)
class SetAside:
    """Why a file was set aside, and the etag that it had."""

    rejected: Rejected
    etag: str


class Landing:
    """Lists, reads and sets aside source files. botocore's errors pass through: they say nothing about a file."""

    def __init__(self, s3: S3Settings) -> None:
        self._bucket = s3.bucket
        self._client = s3_client(s3)

    def answers(self) -> bool:
        """Whether the object store answers, be it to refuse."""
        try:
            self._client.head_bucket(Bucket=self._bucket)
        except ClientError:
            return True
        except BotoCoreError:
            return False
        return True

    def files(self) -> Iterator[SourceFile]:
        """Every file that lies there whole."""
        for item in objects(self._client, self._bucket, PREFIX):
            # Some clients put a key with a slash there, to show a folder. A server on a file system may list an upload that goes on, or
            # was cut off, under a name of its own and without a tag.
            if not item["Key"].endswith("/") and "ETag" in item:
                yield SourceFile(item["Key"], item["ETag"], item["Size"], item["LastModified"])

    def put(self, name: str, body: bytes) -> SourceFile:
        """Upload a file, as other teams do, in place of one of the same name."""
        key = PREFIX + name
        etag = self._client.put_object(Bucket=self._bucket, Key=key, Body=body)["ETag"]
        return SourceFile(key, etag, len(body), datetime.now(UTC))

    def reasons(self, name: str) -> Mapping[str, str]:
        """The keys of the reasons for which files of this name were set aside, with their etags."""
        ending = f"Z-{_flat(name)}{_REASON}"
        listed = objects(self._client, self._bucket, REJECTED_PREFIX)
        return {item["Key"]: item["ETag"] for item in listed if item["Key"].endswith(ending) and "ETag" in item}

    def set_aside_since(self, name: str, before: Mapping[str, str]) -> Iterator[tuple[str, SetAside]]:
        """The files of this name that were set aside since their `reasons` were these, with their new keys."""
        for key, etag in self.reasons(name).items():
            if before.get(key) != etag:
                said = json.loads(self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read())
                yield key.removesuffix(_REASON), SetAside(Rejected(said["reason"], said["explanation"]), said["etag"])

    def read(self, file: SourceFile) -> bytes:
        """The file's content, of the listed etag: the server refuses when it has another by now."""
        return self._client.get_object(Bucket=self._bucket, Key=file.key, IfMatch=file.etag)["Body"].read()

    def has(self, file: SourceFile) -> bool:
        """Whether the file lies there now, with the listed etag."""
        try:
            return self._client.head_object(Bucket=self._bucket, Key=file.key)["ETag"] == file.etag
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                return False
            raise

    def set_aside(self, file: SourceFile, rejected: Rejected) -> str:
        """Move the file out of the landing prefix, its reason beside it; the new key.

        Interrupted, it is done again under the same name. Raises Overtaken if the file was replaced meanwhile; what took its
        place stays.
        """
        aside = f"{REJECTED_PREFIX}{file.uploaded_at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{_flat(file.name)}"
        reason = asdict(rejected) | {
            "file": file.key,
            "etag": file.etag,
            "size_bytes": file.size_bytes,
            "uploaded_at": file.uploaded_at.isoformat(),
            "rejected_at": datetime.now(UTC).isoformat(),
        }
        try:
            self._client.copy(
                {"Bucket": self._bucket, "Key": file.key},
                self._bucket,
                aside,
                ExtraArgs={"CopySourceIfMatch": file.etag},
            )
            self._client.put_object(
                Bucket=self._bucket,
                Key=aside + _REASON,
                Body=json.dumps(reason, indent=2).encode(),
                ContentType="application/json",
            )
            # Not every server heeds the condition of a delete.
            if self.has(file):
                self._client.delete_object(Bucket=self._bucket, Key=file.key, IfMatch=file.etag)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] in (404, 412):
                raise Overtaken(f"{file.key} was replaced or removed after it was read") from error
            raise
        return aside


def _flat(name: str) -> str:
    """The name as one part of a key; with a digest where it isn't the whole name any more."""
    flat = name.replace("/", "_").encode()[:_NAME_BYTES].decode(errors="ignore")
    return flat if flat == name else f"{flat}-{blake2b(name.encode(), digest_size=8).hexdigest()}"
