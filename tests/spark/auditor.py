"""`Auditor`: audits the topics of a test, and what its reports note."""

from __future__ import annotations

from pathlib import Path

from services.audit.__main__ import audit
from services.audit.hops.hop import Hop
from services.audit.report import Report
from services.audit.settings import AuditSettings
from spark.runtime.settings import SparkSettings
from tests.sample import topics as handles
from tests.spark.examples import Topics

PLATFORM = (handles.ALERTS_RAISED.name, handles.DEADLETTERS_SETTLED.name, handles.RULES_ACTIVATED.name)
"""Topics that an audit reads besides."""
_FILES = ("lookups_file", "filters_file", "aggregates_file", "joins_file")


class Auditor:
    """Audits one hop, or all, of which nothing else has been filled."""

    def __init__(self, settings: SparkSettings, topics: Topics, folder: Path, hop: Hop, **told: Path) -> None:
        """`told`: files of the audit's settings; the others are empty."""
        own = {name: folder / f"{name}.yaml" for name in ("rules_file", *_FILES)}
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
