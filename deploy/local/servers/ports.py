"""The ports of the local stack, all on the loopback address."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from deploy.errors import PortInUse
from deploy.local.processes.deployable import deployables

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Ports:
    """Fixed defaults, away from those that other software likes, so that a client's settings stay valid.

    Those of the `deployables`, by name, serve their `/health` and `/metrics`.
    """

    kafka: int = 19092
    controller: int = 19093
    registry: int = 18081
    registry_management: int = 18082
    s3: int = 19000
    deployables: Mapping[str, int] = field(
        default_factory=lambda: {each.name: each.port for each in deployables().deployables if each.port}
    )

    @classmethod
    def free(cls) -> Ports:
        """Ports that nobody uses now, for a stack beside others. Raises PortInUse if there are none."""
        return cls().offset(cls.free_offset())

    @classmethod
    def free_offset(cls) -> int:
        """How much higher than the defaults such ports are."""
        # Below those that clients' connections get (32768 on), which come and go. Each process begins elsewhere, so that two
        # that start a stack at the same moment don't choose the same.
        offsets = list(range(1000, 13_000, 150))
        first = os.getpid() % len(offsets)
        for offset in offsets[first:] + offsets[:first]:
            try:
                cls().offset(offset).check_free()
            except PortInUse:
                continue
            return offset
        raise PortInUse("no ports are free for another stack: stop some (`./headrace down`).")

    def offset(self, by: int) -> Ports:
        """The same ports, each `by` higher: a second stack on the machine."""
        own = {name: port + by for name, port in self._of_the_stack().items()}
        return Ports(**own, deployables={name: port + by for name, port in self.deployables.items()})

    def of(self, deployable: str) -> int:
        """That of a deployable; 0, which is any free one, if the file gives it none."""
        return self.deployables.get(deployable, 0)

    def check_free(self) -> None:
        """Raises PortInUse when somebody listens on one of them."""
        for name, port in (self._of_the_stack() | dict(self.deployables)).items():
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError as error:
                    raise PortInUse(
                        f"Port {port}, which {name.replace('_', ' ')} needs, is in use: stop what listens there"
                        " (`./headrace down` if it is a stack of yours), or choose others by --port-offset."
                    ) from error

    def _of_the_stack(self) -> dict[str, int]:
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "deployables"}
