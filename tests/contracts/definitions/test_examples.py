from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import fastavro
import pytest
from pydantic import BaseModel

from contracts import topics
from contracts.definitions.catalog import Catalog, load_catalog
from contracts.definitions.example import example_files
from contracts.handle import Topic
from tests import sample
from tests.sample import topics as of_the_sample

TREE, SAMPLE = load_catalog(), sample.catalog()


def _handles(module: ModuleType) -> list[Topic[Any]]:
    return [handle for handle in vars(module).values() if isinstance(handle, Topic)]


def _examples(catalog: Catalog, module: ModuleType) -> Iterator[Any]:
    for handle in _handles(module):
        for path in example_files(catalog.root, handle.name):
            yield pytest.param(catalog, handle, path, id=f"{handle.name}-{path.stem}")


EXAMPLES = pytest.mark.parametrize(
    ("catalog", "handle", "path"), [*_examples(TREE, topics), *_examples(SAMPLE, of_the_sample)]
)


@EXAMPLES
def test_an_example_is_an_event_and_comes_back_from_avro(catalog: Catalog, handle: Topic[Any], path: Path) -> None:
    event: BaseModel = handle.model.model_validate_json(path.read_text(encoding="utf-8"))
    schema = fastavro.parse_schema(json.loads(catalog.schema(handle.name)))
    body = BytesIO()
    fastavro.schemaless_writer(body, schema, event.model_dump(), strict=True)
    body.seek(0)
    assert handle.model.model_validate(fastavro.schemaless_reader(body, schema, None)) == event


@pytest.mark.parametrize(
    ("catalog", "name"), [(catalog, name) for catalog in (TREE, SAMPLE) for name in catalog.topics]
)
def test_every_topic_has_an_example_and_an_owner(catalog: Catalog, name: str) -> None:
    assert list(example_files(catalog.root, name))
    assert catalog.topic(name).owner


@EXAMPLES
def test_an_example_is_written_as_its_model_writes_it(catalog: Catalog, handle: Topic[Any], path: Path) -> None:
    event = handle.model.model_validate_json(path.read_text(encoding="utf-8"))
    assert json.loads(path.read_text(encoding="utf-8")) == event.model_dump(mode="json")
