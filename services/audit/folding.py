"""`Foldings`: the dimensions that are made of topics, compared with those: the versions that records name, and the one in force."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from contracts.definitions.dimension import DimensionContract
from contracts.settings import Settings
from services.audit.hops.folded import Folded
from services.audit.plan import Plan, Source
from services.audit.records.history import History, read_history
from services.audit.records.records import Records
from services.audit.sources.broker import Broker
from services.audit.sources.dimension_table import Published, newest_version, published, read_version
from services.audit.values.finding import Finding, Tally
from services.audit.workers import Workers

_MOST_VERSIONS = 500
"""Of a dimension; the newest ones. Each is read as a whole."""


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
        asked = sorted({*(each for each in named if each <= newest), newest}, reverse=True)
        # Before the topic's ends are: it has all that these were made of.
        versions = {
            each: (published(self._s3, contract.location, each), read_version(self._s3, contract.location, each))
            for each in asked[:_MOST_VERSIONS]
        }
        folded, found = self._compared(contract, source, versions)
        if found:
            # Compaction may have gone over the topic while it was read: what is wrong is wrong a second time.
            wrong = {version: versions[version] for version in found}
            _, again = self._compared(contract, source, wrong)
            for version in found.keys() & again.keys():
                yield from found[version]
        folded.tally.notes[f"versions before the newest {_MOST_VERSIONS}, not compared"] += len(asked[_MOST_VERSIONS:])
        self.tallies.append(folded.tally)

    def _compared(
        self,
        contract: DimensionContract,
        source: Source,
        versions: Mapping[int, tuple[Published | None, pa.Table | None]],
    ) -> tuple[Folded, dict[int, list[Finding]]]:
        topic_id = self._broker.topic_id(source.name)
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
        history: History
        (history,) = self._workers.run([(read_history, reading)], sum(ends.values()) - sum(starts.values()))
        folded = Folded(contract, source.name, str(topic_id), history)
        found = {version: list(folded.findings(version, *of)) for version, of in versions.items()}
        return folded, {version: of for version, of in found.items() if of}
