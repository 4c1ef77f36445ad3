"""The versions of a dimension: a new one, as another team would cause it, and the newest that is published."""

from __future__ import annotations

from deltalake import DeltaTable

from contracts.definitions.catalog import load_catalog
from contracts.settings import S3Settings
from deploy.local.servers.landing import first_rows
from services.dimensions.landing import Landing
from tests.bench.load.records import DIMENSION, FURTHER_ROW


def upload_version(s3: S3Settings, mark: object) -> None:
    """Upload the dimension's source file with one more row, which has the mark; the service `dimensions` makes a version of it."""
    catalog = load_catalog()
    dimension = catalog.dimension(DIMENSION)
    source = first_rows(catalog, dimension)
    assert source is not None
    assert dimension.source is not None
    rows = source.read_text(encoding="utf-8").rstrip("\n")
    Landing(s3).put(dimension.source, f"{rows}\n{FURTHER_ROW.format(mark)}\n".encode())


def newest_version(s3: S3Settings) -> int:
    """The number of the dimension's newest version, which its table has; an upload becomes one some seconds later."""
    location = load_catalog().dimension(DIMENSION).location
    return DeltaTable(f"s3://{s3.bucket}/{location}", storage_options=s3.delta_options()).version()
