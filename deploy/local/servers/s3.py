"""The S3 server of the local stack: S3Proxy over a folder of this machine."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from deploy.local.downloads.java import java_command
from deploy.local.processes.process import Process
from deploy.local.servers.http import wait_for_http
from deploy.local.servers.java_properties import property_value
from deploy.local.servers.ports import HOST, Ports

_PROPERTIES = """\
s3proxy.endpoint=http://{host}:{port}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={access_key}
s3proxy.credential={secret_key}
s3proxy.jetty.max-threads=32
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={data}
"""


class S3Server:
    """The server as a process; its objects lie in `<directory>/s3/data`, its keys are made up at its first start."""

    name = "s3"
    access_key = "headrace"

    def __init__(self, directory: Path, ports: Ports, jars: Path) -> None:
        self._home = directory / "s3"
        self._ports = ports
        self._properties = self._home / "s3proxy.properties"
        jar = next(jars.glob("s3proxy-*.jar"))
        self.process = Process(
            self.name,
            [
                java_command(),
                "-Xmx256m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-jar",
                str(jar),
                "--properties",
                str(self._properties),
            ],
            directory=directory,
        )

    @property
    def endpoint(self) -> str:
        """Its address, for path-style requests."""
        return f"http://{HOST}:{self._ports.s3}"

    @property
    def secret_key(self) -> str:
        """The secret key of this folder's server, made up when it is first asked for."""
        file = self._home / "secret-key"
        if not file.exists():
            self._home.mkdir(parents=True, exist_ok=True)
            _write_private(file, secrets.token_urlsafe(24))
        return file.read_text()

    def start(self) -> None:
        """Start it."""
        data = self._home / "data"
        data.mkdir(parents=True, exist_ok=True)
        content = _PROPERTIES.format(
            host=HOST,
            port=self._ports.s3,
            access_key=self.access_key,
            secret_key=self.secret_key,
            data=property_value(str(data.resolve())),
        )
        _write_private(self._properties, content)
        self.process.start()

    def wait_healthy(self, timeout_seconds: float = 60) -> None:
        """Wait until it answers HTTP, be it to refuse an unsigned request; raises ProcessFailed."""
        wait_for_http(
            self.process,
            self.endpoint,
            lambda status: status < 500,
            what=f"{self.endpoint} answered",
            timeout_seconds=timeout_seconds,
        )


def _write_private(path: Path, content: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(content)
