"""`Proxy`: stands between the services and a server over TCP, and can refuse, slow down or cut what passes."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from deploy.local.servers.ports import HOST

Mode = Literal["open", "refusing", "slow", "cutting"]
_CHUNK_BYTES = 65_536
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset


@dataclass
class Hits:
    """How often the proxy has done what it was told to."""

    count: int = 0


class Proxy:
    """Passes everything on to `port` of this machine, unless told otherwise; listens on a free port."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self._mode: Mode = "open"
        self._seconds = 0.0
        self._chance = random.Random(0)
        self._hits = Hits()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server((HOST, 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self._accepting = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._accepting.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Closing alone does not wake a thread that accepts.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        self._reset_all()

    @contextmanager
    def refusing(self) -> Iterator[Hits]:
        """Reset what is open and every new connection; counts the new ones."""
        with self._behaving("refusing") as hits:
            self._reset_all()
            yield hits

    @contextmanager
    def slow(self, seconds: float) -> Iterator[Hits]:
        """Hold up every piece that a client sends (a request, or 64 KiB of one); counts them."""
        self._seconds = seconds
        with self._behaving("slow") as hits:
            yield hits

    @contextmanager
    def cutting(self, chance: random.Random) -> Iterator[Hits]:
        """Reset every other connection that brings a PUT, by `chance`, when half of the piece has gone through."""
        self._chance = chance
        with self._behaving("cutting") as hits:
            yield hits

    @contextmanager
    def _behaving(self, mode: Mode) -> Iterator[Hits]:
        self._hits = hits = Hits()
        self._mode = mode
        try:
            yield hits
        finally:
            self._mode = "open"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._mode == "refusing":
                self._hits.count += 1
                _reset(client)
                continue
            try:
                server = socket.create_connection((HOST, self._behind), timeout=5)
            except OSError:
                _reset(client)
                continue
            server.settimeout(None)
            self._open |= {client, server}
            for one, other, serve in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=[one, other, serve], daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, from_client: bool) -> None:
        try:
            while piece := source.recv(_CHUNK_BYTES):
                if from_client and self._mode == "slow":
                    self._hits.count += 1
                    time.sleep(self._seconds)
                if (
                    from_client
                    and self._mode == "cutting"
                    and piece.startswith(b"PUT ")
                    and self._chance.random() < 0.5
                ):
                    self._hits.count += 1
                    target.sendall(piece[: len(piece) // 2])
                    break
                target.sendall(piece)
        except OSError:
            pass
        finally:
            for end in (source, target):
                self._open.discard(end)
                _reset(end) if self._mode in ("cutting", "refusing") else _close(end)

    def _reset_all(self) -> None:
        for end in list(self._open):
            _reset(end)


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def _reset(end: socket.socket) -> None:
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        # Wakes the thread that reads from it, which closing would leave hanging.
        end.shutdown(socket.SHUT_RD)
    end.close()
