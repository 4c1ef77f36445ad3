"""`Auditor`: audits the topics of a test; what its reports note, and what is planted for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from contracts.records.codec import Codec
from contracts.servers.registry import Registry
from services.audit.__main__ import audit
from services.audit.hops.hop import Hop
from services.audit.report import Report
from services.audit.settings import AuditSettings
from spark.runtime.settings import SparkSettings
from tests.producers import ordered
from tests.sample import topics as handles
from tests.spark.examples import Topics
from tests.spark.live_query import events

PLATFORM = (handles.ALERTS_RAISED.name, handles.DEADLETTERS_SETTLED.name, handles.RULES_ACTIVATED.name)
"""Topics that an audit reads besides."""
FILES = ("lookups_file", "filters_file", "aggregates_file", "joins_file", "rankings_file")
"""Settings with what the audit is told of pipelines."""


class Auditor:
    """Audits one hop, or all, of which nothing else has been filled."""

    def __init__(self, settings: SparkSettings, topics: Topics, folder: Path, hop: Hop, **told: Path) -> None:
        """`told`: files of the audit's settings; the others are empty."""
        own = {name: folder / f"{name}.yaml" for name in ("rules_file", *FILES)}
        for name, path in own.items():
            path.write_text("rules: []\n" if name == "rules_file" else "{}\n")
        shipped = AuditSettings(kafka=settings.kafka, registry=settings.registry, s3=settings.s3)
        self.settings = shipped.model_copy(update=own | told)
        self.catalog, self._hop = topics.catalog, hop

    def __call__(self, *hops: Hop, full: bool = True, wait_seconds: float = 0) -> Report:
        return audit(
            self.settings,
            self.catalog,
            full=full,
            hops=hops or (self._hop,),
            processes=1,
            wait_seconds=wait_seconds,
        )


def noted(report: Report, text: str) -> int:
    """How many records of all partitions a report has this to say of."""
    return sum(tally.notes[text] for tally in report.tallies)


def looked_at(report: Report, raw: str) -> int:
    """How many records of a raw topic were compared with what was made of them."""
    return sum(each.records for each in report.tallies if "→" in each.hop and each.partition.startswith(f"{raw}/"))


def planter(topics: Topics, auditor: Auditor, registry: Registry, name: str) -> Callable[..., str]:
    """Sends one more record like that of a parcel, to a topic that is named as in the contracts, and gives its coordinate."""
    contract = topics.catalog.topic(name)
    made = {event["parcel_id"]: (event, headers, message) for event, headers, message in events(topics, name)}
    codec, schema_id = Codec(registry.by_id), topics.schema_ids[name]
    producer = ordered(auditor.settings.kafka.client_config())

    def plant(like: str, *, ce_id: str | None = None, key: str | None = None, **fields: Any) -> str:
        event, headers, message = made[like]
        changed = event | fields
        sent: list[str] = []
        producer.produce(
            contract.name,
            codec.encode(schema_id, changed),
            key or changed["parcel_id"],
            partition=message.partition() or 0,
            headers=[("ce_id", (headers["ce_id"] or b"") if ce_id is None else ce_id.encode())],
            on_delivery=lambda _, sent_: sent.append(f"{contract.name}/{sent_.partition()}/{sent_.offset()}"),
        )
        assert producer.flush(30) == 0
        return sent[0]

    return plant
