"""A domain that stands for any: parcels, which couriers' vans carry from depot to depot. The machinery's own tests are about it.

Its contracts name the platform's own topics too; those files are links to the platform's.
"""

from __future__ import annotations

from pathlib import Path

from contracts.checks.check import check
from contracts.definitions.catalog import Catalog, load_catalog
from contracts.definitions.contract_file import Problem

SAMPLE = Path(__file__).parent
CONTRACTS = SAMPLE / "contracts"
PIPELINES = SAMPLE / "pipelines"
SERVICES = SAMPLE / "services"
TABLES = SAMPLE / "tables"
"""The dimensions' source files."""
RULES = SAMPLE / "rules.yaml"
LOOKUPS, FILTERS, AGGREGATES, JOINS, RANKINGS = (
    SAMPLE / f"{name}.yaml" for name in ("lookups", "filters", "aggregates", "joins", "rankings")
)
"""What the audit is told of the pipelines."""


def catalog() -> Catalog:
    """The contracts of the parcels."""
    return load_catalog(CONTRACTS)


def problems(root: Path = CONTRACTS, *, for_release: bool = False) -> list[Problem]:
    """What `check` says of the parcels' contracts, or of a copy of them."""
    return check(root, PIPELINES, SERVICES, for_release=for_release)
