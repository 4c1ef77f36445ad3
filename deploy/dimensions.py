"""The dimensions' source files: checked as `dimensions` does, uploaded, and what becomes of them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from deltalake.exceptions import DeltaError

from contracts.definitions.catalog import Catalog
from contracts.definitions.dimension import DimensionContract
from contracts.settings import S3Settings, read_settings
from deploy.dead_letter_text import aligned, instant
from deploy.errors import DeployError
from services.dimensions.landing import Landing, SourceFile
from services.dimensions.parse import parse
from services.dimensions.publication import InForce, Publications, fingerprint_of
from services.dimensions.rejected import Rejected
from services.dimensions.settings import DimensionsSettings

T = TypeVar("T")

_SECONDS_BETWEEN_LOOKS = 1.0


@dataclass(frozen=True, slots=True)
class Source:
    """A source file that its contract allows, and its count of rows."""

    contract: DimensionContract
    body: bytes
    rows: int


def read_source(file: Path, catalog: Catalog, dimension: str | None) -> Source:
    """A file of the `dimension`, by default of the one whose source has the file's name. Raises DeployError with what `dimensions` would say to it."""
    if dimension is not None:
        contract = catalog.dimension(dimension)
        if contract.topic is not None:
            raise DeployError(f"{dimension} is made of the topic {contract.topic}, not of files: publish to that")
    else:
        of_source = {each.source: each for each in catalog.dimensions.values() if each.source is not None}
        if file.name not in of_source:
            raise DeployError(
                f"no dimension has the source {file.name}: name the dimension by --dimension, one of {', '.join(each.name for each in of_source.values())}"
            )
        contract = of_source[file.name]
    most = read_settings(DimensionsSettings).max_file_bytes
    try:
        with file.open("rb") as stream:
            body = stream.read(most + 1)
    except OSError as error:
        raise DeployError(f"{file} can't be read: {error.strerror}") from None
    if len(body) > most:
        raise DeployError(
            f"{file} has more than {most:,} bytes, which dimensions would reject: see HEADRACE_MAX_FILE_BYTES"
        )
    table = parse(contract, body)
    if isinstance(table, Rejected):
        raise DeployError(f"{file}: {table.reason}: {table.explanation}")
    return Source(contract, body, table.num_rows)


class Upload:
    """A source file on its way: `send` puts it where `dimensions` looks, and `outcome` waits for what that makes of it.

    All raise DeployError if the store refuses or does not answer.
    """

    def __init__(self, s3: S3Settings, source: Source) -> None:
        self._landing, self._publications, self._s3 = Landing(s3), Publications(s3), s3
        self._contract, self._body = source.contract, source.body
        self._sha256 = hashlib.sha256(source.body).hexdigest()
        self.before = _asked(s3, lambda: self._publications.in_force(source.contract))
        """The version in force before."""
        self._known: Mapping[str, str] = {}
        self._file: SourceFile | None = None

    @property
    def is_in_force(self) -> bool:
        """Whether the version in force was made of this file, by this contract: then no other version comes of it."""
        return self.before is not None and self.before.fingerprint == fingerprint_of(self._contract, self._body)

    def send(self) -> str:
        """Upload it. Returns where it lies then, as a URI."""

        def put() -> str:
            self._known = self._landing.reasons(self._contract.made_of)
            self._file = self._landing.put(self._contract.made_of, self._body)
            return f"s3://{self._s3.bucket}/{self._file.key}"

        return _asked(self._s3, put)

    def outcome(self, seconds: float) -> InForce:
        """The version that was made of it. Raises DeployError if it was set aside, or none was made of it for so many seconds."""
        deadline = time.monotonic() + seconds
        while (found := _asked(self._s3, self._look)) is None:
            if time.monotonic() > deadline:
                raise DeployError(_asked(self._s3, lambda: self._why_not(seconds)))
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        return found

    def _look(self) -> InForce | None:
        current = self._publications.in_force(self._contract)
        before = -1 if self.before is None else self.before.version
        if current is not None and current.version > before and current.sha256 == self._sha256:
            return current
        assert self._file is not None
        for key, aside in self._landing.set_aside_since(self._contract.made_of, self._known):
            if aside.etag == self._file.etag:
                raise DeployError(
                    f"dimensions has set the file aside as {aside.rejected.reason}: {aside.rejected.explanation}. "
                    f"It lies at s3://{self._s3.bucket}/{key}; the version before stays in force"
                )
        return None

    def _why_not(self, seconds: float) -> str:
        assert self._file is not None
        if self.before is not None and self.before.sha256 == self._sha256:
            return (
                f"version {self.before.version} was made of the same file by another contract, and no other came for {seconds:g} s: start dimensions "
                "again, so that it runs with this contract"
            )
        if not self._landing.has(self._file):
            return "the file was replaced or removed before dimensions had taken it"
        return f"dimensions has not taken the file for {seconds:g} s, where it lies until it does: ask ./headrace status whether it runs"


def in_force(s3: S3Settings, catalog: Catalog) -> dict[str, InForce | None]:
    """The newest version of each dimension. Raises DeployError if the store does not answer."""
    publications = Publications(s3)
    return _asked(s3, lambda: {name: publications.in_force(each) for name, each in catalog.dimensions.items()})


def lines(catalog: Catalog, found: dict[str, InForce | None]) -> Iterator[str]:
    """A table."""
    rows = [("dimension", "version", "rows", "published", "made of", "key", "looked up by")]
    for name, each in catalog.dimensions.items():
        now = found[name]
        rows.append(
            (
                name,
                "none" if now is None else str(now.version),
                "" if now is None else f"{now.rows:,}",
                "" if now is None or now.published_at is None else instant(now.published_at),
                each.made_of,
                ", ".join(each.key),
                ", ".join(each.consumers),
            )
        )
    return aligned(rows)


def as_json(catalog: Catalog, found: dict[str, InForce | None]) -> list[dict[str, Any]]:
    """The same for programs; instants in ISO 8601."""
    return [
        {
            "dimension": name,
            "source": each.source,
            "topic": each.topic,
            "key": list(each.key),
            "consumers": list(each.consumers),
            "in_force": None
            if (now := found[name]) is None
            else {
                "version": now.version,
                "rows": now.rows,
                "published_at": None if now.published_at is None else now.published_at.isoformat(),
            },
        }
        for name, each in catalog.dimensions.items()
    ]


def _asked(s3: S3Settings, ask: Callable[[], T]) -> T:
    try:
        return ask()
    except (BotoCoreError, ClientError, DeltaError, OSError) as error:
        raise DeployError(f"the store at {s3.endpoint or 'S3'} says: {error}") from error
