"""The bucket as a file system of pyarrow's, which reads only the columns and ranges that it needs."""

from __future__ import annotations

from pyarrow import fs

from contracts.settings import S3Settings


def file_system(s3: S3Settings) -> fs.S3FileSystem:
    """Paths are bucket/key."""
    options = {}
    if s3.endpoint is not None:
        options = {"endpoint_override": f"{s3.endpoint.host}:{s3.endpoint.port}", "scheme": s3.endpoint.scheme}
    if s3.access_key is not None and s3.secret_key is not None:
        options |= {"access_key": s3.access_key.get_secret_value(), "secret_key": s3.secret_key.get_secret_value()}
    return fs.S3FileSystem(region=s3.region, **options)
