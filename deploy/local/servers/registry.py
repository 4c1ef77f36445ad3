"""The schema registry of the local stack: Apicurio, which speaks Confluent's API."""

from __future__ import annotations

from pathlib import Path

import httpx

from deploy.local.downloads.jars import unpacked
from deploy.local.downloads.java import java_command
from deploy.local.processes.process import Process
from deploy.local.servers.http import wait_for_http
from deploy.local.servers.ports import HOST, Ports


class SchemaRegistry:
    """The registry as a process; its database lies in `<directory>/registry`."""

    name = "registry"

    def __init__(self, directory: Path, ports: Ports, jars: Path) -> None:
        self._home = directory / "registry"
        self._ports = ports
        application = next(unpacked("registry", jars).rglob("quarkus-run.jar"))
        self.process = Process(
            self.name,
            [
                java_command(),
                "-Xmx256m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                f"-Dquarkus.http.host={HOST}",
                f"-Dquarkus.http.port={ports.registry}",
                f"-Dquarkus.management.host={HOST}",
                f"-Dquarkus.management.port={ports.registry_management}",
                # WRITE_DELAY=0: else a kill loses the last writes.
                f"-Dapicurio.datasource.url=jdbc:h2:file:{self._home.resolve()}/registry;WRITE_DELAY=0",
                "-Dapicurio.rules.global.compatibility=BACKWARD",
                "-jar",
                str(application),
            ],
            directory=directory,
        )

    @property
    def url(self) -> str:
        """The base address of the Confluent API."""
        return f"http://{HOST}:{self._ports.registry}/apis/ccompat/v7"

    def start(self) -> None:
        """Start it."""
        self._home.mkdir(parents=True, exist_ok=True)
        self.process.start()

    def wait_healthy(self, timeout_seconds: float = 90) -> None:
        """Wait until its own health endpoint says that it is ready; raises ProcessFailed."""
        address = f"http://{HOST}:{self._ports.registry_management}/health/ready"
        wait_for_http(
            self.process,
            address,
            lambda status: status == httpx.codes.OK,
            what=f"{address} answered 200",
            timeout_seconds=timeout_seconds,
        )
