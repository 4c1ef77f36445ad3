"""The object store: `s3_client`. Only deployables whose extra has boto3 import this file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import ResponseStreamingError

from contracts.settings import S3Settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectTypeDef


ANSWER_SECONDS, LOOK_SECONDS = 30, 5
"""How long an answer is waited for, and how long by whoever looks at something while records wait."""


def s3_client(s3: S3Settings, *, answer_seconds: int = ANSWER_SECONDS) -> S3Client:
    """A client of the object store that the settings name, which waits so long for each answer, three times. Checksums are left to the servers that ask for them.

    An object whose body is cut off is no shorter object: reading it raises a BotoCoreError.
    """
    client = boto3.client(
        "s3",
        endpoint_url=None if s3.endpoint is None else str(s3.endpoint),
        region_name=s3.region,
        aws_access_key_id=None if s3.access_key is None else s3.access_key.get_secret_value(),
        aws_secret_access_key=None if s3.secret_key is None else s3.secret_key.get_secret_value(),
        config=Config(
            s3={"addressing_style": "auto" if s3.endpoint is None else "path"},
            connect_timeout=5,
            read_timeout=answer_seconds,
            retries={"mode": "standard", "max_attempts": 3},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )
    client.meta.events.register("after-call.s3.GetObject", _demand_an_end)
    return client


def keys(client: S3Client, bucket: str, prefix: str) -> list[str]:
    """Of all objects whose key begins with the prefix."""
    return [each["Key"] for each in objects(client, bucket, prefix)]


def objects(client: S3Client, bucket: str, prefix: str) -> list[ObjectTypeDef]:
    """All whose key begins with the prefix: `Key`, `Size`, `LastModified`, and `ETag` if it is whole."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return [each for page in pages for each in page.get("Contents", [])]


def _demand_an_end(parsed: dict[str, Any], **_: object) -> None:
    """Of a body with a length or in chunks botocore tells itself whether it is whole; any other ends where its connection does."""
    headers = parsed["ResponseMetadata"].get("HTTPHeaders", {})
    if "Body" in parsed and not {"content-length", "transfer-encoding"} & headers.keys():
        raise ResponseStreamingError(error="the object store says neither the length of the object nor where it ends")
