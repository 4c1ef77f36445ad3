"""What a new stack needs before the deployables: schemas in the registry, topics on the broker, a bucket."""

from __future__ import annotations

import boto3
from botocore.config import Config
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from mypy_boto3_s3 import S3Client
from pydantic import HttpUrl

from contracts.catalog import Catalog
from contracts.registry import Registry
from contracts.settings import RegistrySettings
from deploy.local.s3 import S3Server

_DAY_MS = 24 * 60 * 60 * 1000


def s3_client(server: S3Server) -> S3Client:
    """A client of the stack's S3 server."""
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}),
    )


def create_bucket(server: S3Server, bucket: str) -> None:
    """Create the bucket unless it exists."""
    client = s3_client(server)
    if bucket not in {each["Name"] for each in client.list_buckets()["Buckets"]}:
        client.create_bucket(Bucket=bucket)


def register_contracts(catalog: Catalog, url: str) -> None:
    """Register every schema version of every topic, oldest first, under the topic's compatibility mode."""
    registry = Registry(RegistrySettings(url=HttpUrl(url)))
    for topic in catalog.topics.values():
        for schema in catalog.schemas(topic.name):
            registry.register(topic.subject, schema)
        registry.set_compatibility(topic.subject, topic.compatibility)


def create_topics(catalog: Catalog, bootstrap_servers: str) -> None:
    """Create the topics and dead-letter topics that don't exist yet."""
    wanted = []
    for topic in catalog.topics.values():
        retention = {"retention.ms": str(topic.retention_days * _DAY_MS)}
        wanted.append(NewTopic(topic.name, topic.partitions, 1, config=retention))
        retention = {"retention.ms": str(topic.dead_letters.retention_days * _DAY_MS)}
        wanted.append(NewTopic(topic.dead_letter_topic, 1, 1, config=retention))
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})  # its end would cancel the requests
    for created in admin.create_topics(wanted).values():
        try:
            created.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
