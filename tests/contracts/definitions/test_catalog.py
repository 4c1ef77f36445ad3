from __future__ import annotations

import json
from pathlib import Path

import pytest

from contracts import topics
from contracts.definitions.catalog import load_catalog
from contracts.errors import ContractError
from contracts.handle import Topic
from tests.contracts.files import ContractFiles


def test_every_topic_of_the_catalog_has_a_handle() -> None:
    handles = {handle.name for handle in vars(topics).values() if isinstance(handle, Topic)}
    assert handles == set(load_catalog().topics)


def test_a_topic_knows_its_subject_and_its_dead_letter_topic() -> None:
    topic = load_catalog().topic("flights.departed.v1")
    assert (topic.subject, topic.dead_letter_topic) == ("flights.departed.v1-value", "flights.departed.v1.dlq")
    assert topic.lake is not None
    assert topic.lake.partition_by == ("origin",)


def test_none_means_no_key_and_no_lake() -> None:
    topic = load_catalog().topic("replay.started.v1")
    assert (topic.key, topic.lake) == (None, None)


def test_schemas_come_oldest_first_up_to_the_current_one(tmp_path: Path) -> None:
    files = ContractFiles(tmp_path)
    schema = files.schema("flights.departed.v1")
    schema["doc"] = "The second version."
    files.write_schema("flights.departed.v1", 2, schema)
    files.replace("topics/flights.departed.v1.yaml", "v1/1.avsc", "v1/2.avsc")
    catalog = load_catalog(files.root)
    docs = [json.loads(text)["doc"] for text in catalog.schemas("flights.departed.v1")]
    assert docs == ["A flight left its gate.", "The second version."]
    assert json.loads(catalog.schema("flights.departed.v1"))["doc"] == "The second version."


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        ContractError,
        match=r"no contract for topic 'flights\.left\.v1'; there are: airports\.served\.v1, alerts\.raised\.v1,",
    ):
        load_catalog().topic("flights.left.v1")
    with pytest.raises(ContractError, match="no contract for dimension 'crews'; there are: airlines, airports, planes"):
        load_catalog().dimension("crews")


def test_a_broken_file_stops_the_load_with_its_line(tmp_path: Path) -> None:
    files = ContractFiles(tmp_path)
    files.replace("topics/flights.departed.v1.yaml", "partitions: 2", "partitions: two")
    with pytest.raises(ContractError, match=r"contracts/topics/flights\.departed\.v1\.yaml:9: 'partitions' is 'two'"):
        load_catalog(files.root)
