"""A local stack of its own, with the dimensions published and, if asked for, a backlog of real events in the raw topic."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import HttpUrl, SecretStr

from contracts.definitions.catalog import load_catalog
from contracts.settings import KafkaSettings, RegistrySettings, S3Settings, Settings
from deploy.local.servers.landing import upload_dimensions
from deploy.local.servers.stack import LocalStack
from tests.bench.load.backlog import fill
from tests.bench.load.records import RAW


@contextmanager
def filled_stack(events: int, say: Callable[[str], None]) -> Iterator[tuple[LocalStack, dict[str, str], Settings]]:
    """`empty_stack` with a backlog."""
    with empty_stack(say) as (stack, env, settings):
        say(f"filling {RAW} with {events:,} events")
        fill(settings, events)
        yield stack, env, settings


@contextmanager
def empty_stack(say: Callable[[str], None]) -> Iterator[tuple[LocalStack, dict[str, str], Settings]]:
    """`bare_stack` with the dimensions published."""
    with bare_stack(say) as (stack, env, settings):
        say("publishing the dimensions")
        publish_dimensions(stack, env)
        yield stack, env, settings


@contextmanager
def bare_stack(say: Callable[[str], None]) -> Iterator[tuple[LocalStack, dict[str, str], Settings]]:
    """The stack, the environment of its clients, and the same as settings; gone at the end."""
    with TemporaryDirectory(prefix="headrace-bench-") as folder, LocalStack(Path(folder), lean=False, say=say) as stack:
        stack.bootstrap()
        env = stack.settings_env()
        yield stack, env, settings_of(env)


def settings_of(env: dict[str, str]) -> Settings:
    return Settings(
        kafka=KafkaSettings(bootstrap_servers=env["HEADRACE_KAFKA__BOOTSTRAP_SERVERS"]),
        registry=RegistrySettings(url=HttpUrl(env["HEADRACE_REGISTRY__URL"])),
        s3=S3Settings(
            endpoint=HttpUrl(env["HEADRACE_S3__ENDPOINT"]),
            bucket=env["HEADRACE_S3__BUCKET"],
            access_key=SecretStr(env["HEADRACE_S3__ACCESS_KEY"]),
            secret_key=SecretStr(env["HEADRACE_S3__SECRET_KEY"]),
        ),
    )


def publish_dimensions(stack: LocalStack, env: dict[str, str], *, besides: Collection[str] = ()) -> None:
    """Publish what lies under the landing prefix, the data set's own tables with it but for those `besides`."""
    upload_dimensions(stack.settings().s3, load_catalog(), besides=besides)
    subprocess.run([sys.executable, "-m", "services.dimensions", "--once"], env=os.environ | env, check=True)
