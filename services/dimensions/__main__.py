"""`python -m services.dimensions [--once]`: publishes the dimensions."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Event, Thread

import structlog
from botocore.exceptions import BotoCoreError, ClientError
from deltalake.exceptions import DeltaError

from contracts.command_line import command_line, set_on_signals
from contracts.definitions.catalog import Catalog, load_catalog
from contracts.errors import HeadraceError
from contracts.observe import configure_logging, serve_health
from contracts.publisher import Publisher
from contracts.servers.registry import Registry
from contracts.settings import read_settings
from services.dimensions.errors import Overtaken
from services.dimensions.follower import Follower
from services.dimensions.landing import Landing
from services.dimensions.publication import Publications
from services.dimensions.reception import Look, Reception
from services.dimensions.settings import DimensionsSettings

_log = structlog.get_logger(__name__)

SERVICE = "dimensions"
ONCE_PATIENCE_SECONDS = 60.0
"""So long `--once` keeps asking an object store that does not answer."""
_REGISTRY_SECONDS = 5.0
_STOP_SECONDS = 20.0
"""So long a follower may take to end what it is about."""


class Rounds:
    """Looks into the landing again and again; an object store that is away is asked again at the next round."""

    def __init__(self, reception: Reception, *, poll_seconds: float) -> None:
        self._reception, self._poll_seconds = reception, poll_seconds
        self.trouble: str | None = None
        """Why the last look failed; None if it did not."""

    def look(self, *, is_only: bool = False) -> Look | None:
        """One look; None if the object store was in trouble, or another process came first."""
        found = None
        try:
            found = self._reception.look(is_only=is_only)
        except Overtaken as overtaken:
            _log.warning("overtaken, looking again", reason=str(overtaken), seconds=self._poll_seconds)
        except (BotoCoreError, ClientError, DeltaError, OSError) as error:
            self.trouble = f"{'a table' if isinstance(error, DeltaError) else 'object store'}: {error}"
            _log.warning("object store in trouble, trying again", error=str(error), seconds=self._poll_seconds)
            return None
        self.trouble = None
        return found

    def run(self, stop: Event) -> int:
        """Until `stop` is set; the exit status."""
        while not stop.is_set():
            self.look()
            stop.wait(self._poll_seconds)
        return 0

    def once(self, stop: Event) -> int:
        """One look that succeeds; the exit status is 1 if a file was set aside or the object store stayed away."""
        deadline = time.monotonic() + ONCE_PATIENCE_SECONDS
        while (found := self.look(is_only=True)) is None:
            if stop.wait(self._poll_seconds) or time.monotonic() > deadline:
                return 1
        return 1 if found.rejected else 0


@contextmanager
def following(catalog: Catalog, settings: DimensionsSettings, stop: Event) -> Iterator[Callable[[], str | None]]:
    """Follow the topics of the dimensions that are made of one, each in a thread, until `stop` is set. Gives what asks for their trouble.

    Raises RegistryError if the registry refuses.
    """
    followed = [contract for contract in catalog.dimensions.values() if contract.topic is not None]
    if not followed:
        yield lambda: None
        return
    with ExitStack() as opened:
        registry = opened.enter_context(Registry(settings.registry, retry_seconds=_REGISTRY_SECONDS))
        publications, followers = Publications(settings.s3), []
        for contract in followed:
            # Each has its own: what is refused of one is no matter of another's.
            publisher = Publisher(settings, service=SERVICE, topics=(), catalog=catalog, registry=registry, stop=stop)
            opened.enter_context(publisher)
            followers.append(Follower(contract, settings, catalog, registry, publications, publisher))
        threads = [Thread(target=each.run, args=(stop,), daemon=True) for each in followers]
        for thread in threads:
            thread.start()
        try:
            yield lambda: next((each.trouble for each in followers if each.trouble is not None), None)
        finally:
            stop.set()
            for thread in threads:
                thread.join(_STOP_SECONDS)


def main() -> int:
    """Take in the source files of the dimensions, and follow their topics; the exit status."""
    parser = command_line("services.dimensions", __doc__)
    parser.add_argument(
        "--once",
        action="store_true",
        help="end after one look for files, with status 1 if one was set aside; follow no topic",
    )
    once = parser.parse_args().once
    settings = read_settings(DimensionsSettings)
    configure_logging(settings, service=SERVICE)
    stop = Event()
    set_on_signals(stop)
    try:
        catalog = load_catalog()
        reception = Reception(
            catalog,
            Landing(settings.s3),
            Publications(settings.s3),
            max_file_bytes=settings.max_file_bytes,
        )
        rounds = Rounds(reception, poll_seconds=settings.poll_seconds)
        if once:
            return rounds.once(stop)
        with (
            following(catalog, settings, stop) as trouble,
            serve_health(settings.http, service=SERVICE, healthy=lambda: rounds.trouble or trouble()),
        ):
            return rounds.run(stop)
    except HeadraceError as error:
        _log.error("the service ends, start it again when this is cured", error=str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
