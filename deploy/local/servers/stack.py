"""The local stack: what Headrace needs of the world, as processes of this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import HttpUrl, SecretStr

from contracts.definitions.catalog import load_catalog
from contracts.servers.provision import create_topics, register_contracts
from contracts.servers.registry import Registry
from contracts.settings import KafkaSettings, RegistrySettings, S3Settings, Settings
from deploy.local.downloads.jars import ensure_jars, say_on_stderr
from deploy.local.downloads.spark_env import spark_env
from deploy.local.processes.process import stop_leftovers
from deploy.local.servers.kafka import KafkaBroker
from deploy.local.servers.landing import create_bucket
from deploy.local.servers.ports import Ports
from deploy.local.servers.registry import SchemaRegistry
from deploy.local.servers.s3 import S3Server

BUCKET = "headrace"
STOP_ORDER = (S3Server.name, SchemaRegistry.name, KafkaBroker.name)
_GRACE_SECONDS = 20


class LocalStack:
    """Broker, registry and S3 server with their data below one folder.

        with LocalStack(directory) as stack:
            stack.bootstrap()
            subprocess.run([...], env={**os.environ, **stack.settings_env()})

    Without `ports`, free ones are taken. Entering raises PortInUse, JarsUnavailable or ProcessFailed, after stopping
    what was already started; whatever an earlier, killed owner of the folder left running is stopped first. For loads that
    are measured, a broker that is not `lean`.
    """

    def __init__(
        self,
        directory: Path,
        ports: Ports | None = None,
        *,
        lean: bool = True,
        say: Callable[[str], None] = say_on_stderr,
    ) -> None:
        self.directory = directory.resolve()
        self.ports = ports or Ports.free()
        self._say = say
        jars = ensure_jars(say=say)
        self.kafka = KafkaBroker(self.directory, self.ports, jars["broker"], lean=lean)
        self.registry = SchemaRegistry(self.directory, self.ports, jars["registry"])
        self.s3 = S3Server(self.directory, self.ports, jars["s3proxy"])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start all three side by side, since none needs another, and wait until each is healthy."""
        stop_leftovers(self.directory, order=STOP_ORDER, grace_seconds=_GRACE_SECONDS, say=self._say)
        self.ports.check_free()
        components = (self.registry, self.kafka, self.s3)
        try:
            for component in components:
                component.start()
            for component in components:
                component.wait_healthy()
                self._say(f"{component.name} is healthy")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all three; their data stay."""
        processes = (self.s3.process, self.registry.process, self.kafka.process)
        for process in processes:
            process.ask_to_stop()
        for process in processes:
            process.stop(grace_seconds=_GRACE_SECONDS)

    def settings_env(self) -> dict[str, str]:
        """The environment by which every deployable finds this stack, and Java, and the jars."""
        return {
            "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "HEADRACE_REGISTRY__URL": self.registry.url,
            "HEADRACE_S3__ENDPOINT": self.s3.endpoint,
            "HEADRACE_S3__ACCESS_KEY": self.s3.access_key,
            "HEADRACE_S3__SECRET_KEY": self.s3.secret_key,
            "HEADRACE_S3__BUCKET": BUCKET,
            **spark_env(),
        }

    def settings(self) -> Settings:
        """The same as a settings object, for clients in this process."""
        return Settings(
            kafka=KafkaSettings(bootstrap_servers=self.kafka.bootstrap_servers),
            registry=RegistrySettings(url=HttpUrl(self.registry.url)),
            s3=S3Settings(
                endpoint=HttpUrl(self.s3.endpoint),
                access_key=SecretStr(self.s3.access_key),
                secret_key=SecretStr(self.s3.secret_key),
                bucket=BUCKET,
            ),
        )

    def bootstrap(self) -> list[str]:
        """Register the contracts, create the topics and the bucket; what is there already stays.

        Returns what `contracts.servers.provision` has done, and raises what it raises, SchemaIncompatible among it.
        """
        catalog, settings = load_catalog(), self.settings()
        create_bucket(settings.s3)
        with Registry(settings.registry) as registry:
            return [*create_topics(settings, catalog), *register_contracts(registry, catalog)]
