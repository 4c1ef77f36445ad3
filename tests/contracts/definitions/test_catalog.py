from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from contracts import topics
from contracts.definitions.catalog import Catalog, load_catalog
from contracts.errors import ContractError
from contracts.handle import Topic
from tests import sample
from tests.contracts.files import ContractFiles
from tests.sample import topics as of_the_sample


@pytest.mark.parametrize(("catalog", "module"), [(load_catalog(), topics), (sample.catalog(), of_the_sample)])
def test_every_topic_of_the_catalog_has_a_handle(catalog: Catalog, module: ModuleType) -> None:
    handles = {handle.name for handle in vars(module).values() if isinstance(handle, Topic)}
    assert handles == set(catalog.topics)


def test_a_topic_knows_its_subject_and_its_dead_letter_topic() -> None:
    topic = sample.catalog().topic("parcels.dispatched.v1")
    assert (topic.subject, topic.dead_letter_topic) == ("parcels.dispatched.v1-value", "parcels.dispatched.v1.dlq")
    assert topic.lake is not None
    assert topic.lake.partition_by == ("origin",)


def test_none_means_no_key_and_no_lake() -> None:
    topic = sample.catalog().topic("replay.started.v1")
    assert (topic.key, topic.lake) == (None, None)


def test_schemas_come_oldest_first_up_to_the_current_one(tmp_path: Path) -> None:
    files = ContractFiles(tmp_path)
    schema = files.schema("parcels.dispatched.v1")
    schema["doc"] = "The second version."
    files.write_schema("parcels.dispatched.v1", 2, schema)
    files.replace("topics/parcels.dispatched.v1.yaml", "v1/1.avsc", "v1/2.avsc")
    catalog = load_catalog(files.root)
    docs = [json.loads(text)["doc"] for text in catalog.schemas("parcels.dispatched.v1")]
    assert docs == ["A parcel left its depot.", "The second version."]
    assert json.loads(catalog.schema("parcels.dispatched.v1"))["doc"] == "The second version."


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        ContractError,
        match=r"no contract for topic 'ships'; there are: alerts\.raised\.v1, deadletters\.settled\.v1,",
    ):
        sample.catalog().topic("ships")
    with pytest.raises(ContractError, match=r"'parcels\.dispached\.v1'; did you mean parcels\.dispatched\.v1\?"):
        sample.catalog().topic("parcels.dispached.v1")
    with pytest.raises(ContractError, match="no contract for dimension 'boats'; there are: couriers, depots, vans"):
        sample.catalog().dimension("boats")


def test_a_broken_file_stops_the_load_with_its_line(tmp_path: Path) -> None:
    files = ContractFiles(tmp_path)
    files.replace("topics/parcels.dispatched.v1.yaml", "partitions: 2", "partitions: two")
    with pytest.raises(ContractError, match=r"contracts/topics/parcels\.dispatched\.v1\.yaml:9: 'partitions' is 'two'"):
        load_catalog(files.root)
