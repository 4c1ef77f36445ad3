from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pydantic import BaseModel

from contracts import topics
from contracts.definitions.catalog import load_catalog
from contracts.definitions.example import example_files
from contracts.handle import Topic

CATALOG = load_catalog()
HANDLES: list[Topic[Any]] = [handle for handle in vars(topics).values() if isinstance(handle, Topic)]
EXAMPLES = [(handle, path) for handle in HANDLES for path in example_files(CATALOG.root, handle.name)]


@pytest.mark.parametrize(("handle", "path"), EXAMPLES, ids=[f"{h.name}-{p.stem}" for h, p in EXAMPLES])
def test_an_example_is_an_event_and_comes_back_from_avro(handle: Topic[Any], path: Path) -> None:
    event: BaseModel = handle.model.model_validate_json(path.read_text(encoding="utf-8"))
    schema = fastavro.parse_schema(json.loads(CATALOG.schema(handle.name)))
    body = BytesIO()
    fastavro.schemaless_writer(body, schema, event.model_dump(), strict=True)
    body.seek(0)
    assert handle.model.model_validate(fastavro.schemaless_reader(body, schema, None)) == event


@pytest.mark.parametrize("name", CATALOG.topics)
def test_every_topic_has_an_example_and_an_owner(name: str) -> None:
    assert list(example_files(CATALOG.root, name))
    assert CATALOG.topic(name).owner


@pytest.mark.parametrize(("handle", "path"), EXAMPLES, ids=[f"{h.name}-{p.stem}" for h, p in EXAMPLES])
def test_an_example_is_written_as_its_model_writes_it(handle: Topic[Any], path: Path) -> None:
    event = handle.model.model_validate_json(path.read_text(encoding="utf-8"))
    assert json.loads(path.read_text(encoding="utf-8")) == event.model_dump(mode="json")
