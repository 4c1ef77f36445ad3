"""The bucket, and the data set's own dimension tables uploaded where other teams would upload theirs."""

from __future__ import annotations

from contracts.catalog import Catalog
from deploy.local.s3 import S3Server
from services.replay.table import data_folder

LANDING = "landing/dimensions"


def create_bucket(server: S3Server, bucket: str) -> None:
    """Create the bucket unless it exists."""
    client = server.client()
    if bucket not in {each["Name"] for each in client.list_buckets()["Buckets"]}:
        client.create_bucket(Bucket=bucket)


def upload_dimensions(server: S3Server, bucket: str, catalog: Catalog) -> list[str]:
    """Upload the source file of every dimension that isn't published yet; returns their names."""
    client = server.client()
    uploaded = []
    for dimension in catalog.dimensions.values():
        published = client.list_objects_v2(Bucket=bucket, Prefix=f"{dimension.location}/_delta_log/", MaxKeys=1)
        source = data_folder() / dimension.source
        if not published.get("KeyCount") and source.exists():
            client.upload_file(str(source), bucket, f"{LANDING}/{dimension.source}")
            uploaded.append(dimension.name)
    return uploaded
