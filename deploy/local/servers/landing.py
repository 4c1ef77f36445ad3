"""The bucket, and the source files of the dimensions, uploaded where other teams would upload theirs."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from contracts.definitions.catalog import Catalog
from contracts.definitions.dimension import DimensionContract
from contracts.servers.s3 import s3_client
from contracts.settings import S3Settings
from deploy.local.processes.deployable import deployables
from services.dimensions.landing import Landing


def create_bucket(s3: S3Settings) -> None:
    """Create the bucket unless it exists."""
    client = s3_client(s3)
    if s3.bucket not in {each["Name"] for each in client.list_buckets()["Buckets"]}:
        client.create_bucket(Bucket=s3.bucket)


def first_rows(catalog: Catalog, dimension: DimensionContract) -> Path | None:
    """The source file that other teams would upload: beside the contract, else in the folder that `deploy/deployables.yaml` names. None if it
    is in neither.
    """
    if dimension.source is None:
        return None
    beside = catalog.root / "dimensions" / dimension.source
    if beside.is_file():
        return beside
    there = deployables().tables_folder / dimension.source
    return there if there.is_file() else None


class Uploaded(NamedTuple):
    """Names of the dimensions that were uploaded, and of those without a version and without a source file."""

    uploaded: list[str]
    lacking: list[str]


def upload_dimensions(s3: S3Settings, catalog: Catalog, *, besides: Collection[str] = ()) -> Uploaded:
    """Upload the source file of every dimension that has one and isn't published yet, but for those `besides`."""
    client, landing = s3_client(s3), Landing(s3)
    found = Uploaded([], [])
    for dimension in catalog.dimensions.values():
        if dimension.source is None or dimension.name in besides:
            continue
        published = client.list_objects_v2(Bucket=s3.bucket, Prefix=f"{dimension.location}/_delta_log/", MaxKeys=1)
        if published.get("KeyCount"):
            continue
        source = first_rows(catalog, dimension)
        if source is None:
            found.lacking.append(dimension.name)
            continue
        landing.put(dimension.source, source.read_bytes())
        found.uploaded.append(dimension.name)
    return found
