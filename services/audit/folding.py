"""`Foldings`: the dimensions that are made of topics, compared with those: the versions that records name, and the one in force."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from contracts.definitions.dimension import DimensionContract
from contracts.settings import Settings
from services.audit.hops.folded import Folded
from services.audit.plan import Plan, Source
from services.audit.records.history import History, read_history
from services.audit.records.records import Records
from services.audit.sources.broker import Broker
from services.audit.sources.dimension_table import Published, newest_version, published, read_version
from services.audit.sources.workers import Workers
from services.audit.values.finding import Finding, Tally

_MOST_VERSIONS = 500
"""Of a dimension; the newest ones. Each is read as a whole."""
_MOST_ROWS = 20_000_000
"""Of all of these together: as many are compared in a minute."""


class Foldings:
    """Reads each such topic from its first record, which costs as much as its keys, and the versions."""

    def __init__(self, settings: Settings, plan: Plan, broker: Broker, workers: Workers) -> None:
        self._kafka, self._registry, self._s3 = settings.kafka.client_config(), settings.registry, settings.s3
        self._plan, self._broker, self._workers = plan, broker, workers
        self.tallies: list[Tally] = []

    def findings(self, records: Iterable[Records]) -> Iterator[Finding]:
        """`records`: of derived topics, which name versions."""
        named: dict[str, set[int]] = {}
        for part in records:
            for dimension, version in part.named:
                named.setdefault(dimension, set()).add(version)
        for contract, source in self._plan.followed:
            yield from self._of(contract, source, named.get(contract.name, set()))

    def _of(self, contract: DimensionContract, source: Source, named: set[int]) -> Iterator[Finding]:
        newest = newest_version(self._s3, contract.location)
        if newest is None:
            return
        asked = sorted({*(each for each in named if each <= newest), newest}, reverse=True)[:_MOST_VERSIONS]
        # Before the topic's ends are: it has all that these were made of.
        said = {each: published(self._s3, contract.location, each) for each in asked}
        history, topic_id = self._history(contract, source), str(self._broker.topic_id(source.name))
        by = contract, contract.digest(source.schema), source.name, topic_id
        folded = Folded(*by, history)
        compared = asked[: max(1, _MOST_ROWS // max(1, len(history.told)))]
        found = {each: list(self._compared(folded, each, said[each])) for each in compared}
        if wrong := [each for each in compared if found[each]]:
            # Compaction may have gone over the topic while it was read: what is wrong is wrong a second time.
            again = Folded(*by, self._history(contract, source))
            for each in wrong:
                if list(self._compared(again, each, said[each])):
                    yield from found[each]
        folded.tally.notes["versions before the newest ones, not compared"] += len({*named, newest}) - len(compared)
        self.tallies.append(folded.tally)

    def _compared(self, folded: Folded, version: int, said: Published | None) -> Iterator[Finding]:
        return folded.findings(version, said, read_version(self._s3, folded.contract.location, version))

    def _history(self, contract: DimensionContract, source: Source) -> History:
        starts, ends = self._broker.starts(source.name), self._broker.ends(source.name)
        reading = (
            self._kafka,
            self._registry,
            source.name,
            source.contract.subject,
            source.schema,
            contract,
            starts,
            ends,
            time.monotonic() + self._registry.lag_seconds,
        )
        found: list[History] = self._workers.run([(read_history, reading)], sum(ends.values()) - sum(starts.values()))
        return found[0]
