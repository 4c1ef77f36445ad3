"""The dimensions' first rows, which a local stack uploads as other teams would."""

from __future__ import annotations

import dataclasses
import uuid
from pathlib import Path

import pytest

from contracts.definitions.catalog import Catalog
from contracts.servers.s3 import s3_client
from deploy.local.servers.landing import first_rows, upload_dimensions
from deploy.local.servers.stack import LocalStack
from services.dimensions.landing import PREFIX
from tests import sample


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """The sample's dimensions at a folder and places of their own; the first one's rows lie beside its contract."""
    place = uuid.uuid4().hex[:8]
    dimensions = {
        name: each.model_copy(update={"location": f"{place}/{name}", "source": f"{place}-{each.source}"})
        for name, each in sample.catalog().dimensions.items()
    }
    (tmp_path / "dimensions").mkdir()
    first = next(iter(dimensions.values()))
    (tmp_path / "dimensions" / first.made_of).write_text("id\n1\n")
    return dataclasses.replace(sample.catalog(), root=tmp_path, dimensions=dimensions)


def test_first_rows_lie_beside_the_contract(catalog: Catalog) -> None:
    first, second, *_ = catalog.dimensions.values()
    assert first_rows(catalog, first) == catalog.root / "dimensions" / first.made_of
    assert first_rows(catalog, second) is None


@pytest.mark.system
def test_what_has_rows_is_uploaded_and_what_has_none_is_named(stack: LocalStack, catalog: Catalog) -> None:
    first, *others = catalog.dimensions.values()
    s3 = stack.settings().s3
    found = upload_dimensions(s3, catalog)
    assert (found.uploaded, found.lacking) == ([first.name], [each.name for each in others])
    body = s3_client(s3).get_object(Bucket=s3.bucket, Key=PREFIX + first.made_of)["Body"].read()
    assert body == b"id\n1\n"
