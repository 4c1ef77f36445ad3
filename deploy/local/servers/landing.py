"""The bucket, and the source files of the dimensions, uploaded where other teams would upload theirs."""

from __future__ import annotations

from collections.abc import Collection

from contracts.definitions.catalog import Catalog
from contracts.servers.s3 import s3_client
from contracts.settings import S3Settings
from deploy.local.processes.deployable import deployables

LANDING = "landing/dimensions"


def create_bucket(s3: S3Settings) -> None:
    """Create the bucket unless it exists."""
    client = s3_client(s3)
    if s3.bucket not in {each["Name"] for each in client.list_buckets()["Buckets"]}:
        client.create_bucket(Bucket=s3.bucket)


def upload_dimensions(s3: S3Settings, catalog: Catalog, *, besides: Collection[str] = ()) -> list[str]:
    """Upload the source file of every dimension that isn't published yet, but for those `besides`; returns their names."""
    client = s3_client(s3)
    folder = deployables().tables_folder
    uploaded = []
    for dimension in catalog.dimensions.values():
        if dimension.name in besides:
            continue
        published = client.list_objects_v2(Bucket=s3.bucket, Prefix=f"{dimension.location}/_delta_log/", MaxKeys=1)
        source = folder / dimension.source
        if not published.get("KeyCount") and source.exists():
            client.upload_file(str(source), s3.bucket, f"{LANDING}/{dimension.source}")
            uploaded.append(dimension.name)
    return uploaded
