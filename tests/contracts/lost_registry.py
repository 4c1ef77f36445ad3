"""`LostRegistry`: a real registry of one test's own that can lose everything, and get it again in another order."""

from __future__ import annotations

import shutil
from pathlib import Path

from pydantic import HttpUrl

from contracts.servers.registry import Registry
from contracts.settings import RegistrySettings
from deploy.local.downloads.jars import ensure_jars
from deploy.local.servers.ports import Ports
from deploy.local.servers.registry import SchemaRegistry


class LostRegistry:
    """Empty at first; `client` stays the same whatever happens to it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server = SchemaRegistry(directory, Ports.free(), ensure_jars(say=print)["registry"])
        self._server.start()
        self._server.wait_healthy()
        self.client = Registry(RegistrySettings(url=HttpUrl(self._server.url), lag_seconds=0.5), retry_seconds=0.5)

    def make_anew(self, *registered: tuple[str, str]) -> None:
        """With these subjects' schemas, in this order."""
        self._server.process.stop(grace_seconds=30)
        shutil.rmtree(self._directory / "registry")
        self._server.start()
        self._server.wait_healthy()
        with Registry(RegistrySettings(url=HttpUrl(self._server.url))) as restorer:
            for subject, schema in registered:
                restorer.register(subject, schema)

    def close(self) -> None:
        self.client.close()
        self._server.process.stop(grace_seconds=30)
