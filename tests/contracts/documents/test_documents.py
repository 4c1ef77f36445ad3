from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import datacontract
import pytest
import yaml
from datacontract.data_contract import DataContract
from datacontract.model.run import ResultEnum
from jsonschema import Draft7Validator
from typer.testing import CliRunner

from contracts.cli import contracts_app
from contracts.definitions.catalog import load_catalog
from contracts.documents.asyncapi import asyncapi
from contracts.documents.diagram import BEGIN, END, diagram, with_diagram
from contracts.documents.files import documents
from contracts.documents.odcs import odcs
from contracts.errors import ContractError
from deploy.local.processes.deployable import ROOT
from deploy.local.servers.ports import HOST, Ports
from tests import sample
from tests.contracts.files import ContractFiles

CATALOG = sample.catalog()
TREE = load_catalog()
# The linter's own copy of the standard: nothing is fetched.
ODCS_SCHEMA = Path(datacontract.__path__[0]) / "schemas" / "odcs-3.1.0.schema.json"


def test_the_committed_documents_are_what_the_contracts_say() -> None:
    assert documents(TREE).stale() == [], "run `headrace contracts docs`"


def _lint_errors(path: Path) -> list[str]:
    run = DataContract(data_contract_file=str(path), schema_location=str(ODCS_SCHEMA)).lint()
    return [str(check.reason) for check in run.checks or [] if check.result != ResultEnum.passed]


@pytest.mark.parametrize("topic", TREE.topics)
def test_the_linter_accepts_the_data_contract(topic: str) -> None:
    assert _lint_errors(ROOT / "docs" / "odcs" / f"{topic}.yaml") == []


def test_the_linter_refuses_another_document(tmp_path: Path) -> None:
    document = odcs(CATALOG, CATALOG.topic("parcels.dispatched.v1"))
    document["schema"][0]["properties"][0]["logicalType"] = "text"
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert _lint_errors(path) != []


def test_personal_data_is_tagged(tmp_path: Path) -> None:
    files = ContractFiles(tmp_path)
    files.replace("topics/parcels.dispatched.v1.yaml", "personal_data: []", "personal_data: [van_id]")
    catalog = load_catalog(files.root)
    fields = odcs(catalog, catalog.topic("parcels.dispatched.v1"))["schema"][0]["properties"]
    tagged = {field["name"] for field in fields if field.get("classification") == "personal"}
    assert tagged == {"van_id"}


def _asyncapi_errors(document: dict[str, Any]) -> list[str]:
    schema = json.loads(Path(__file__).with_name("asyncapi-3.0.0.schema.json").read_text(encoding="utf-8"))
    return [f"{error.json_path}: {error.message[:200]}" for error in Draft7Validator(schema).iter_errors(document)]


def test_the_asyncapi_document_is_accepted_by_its_json_schema() -> None:
    document = yaml.safe_load((ROOT / "docs" / "asyncapi.yaml").read_text(encoding="utf-8"))
    assert _asyncapi_errors(document) == []


def test_the_json_schema_refuses_another_document() -> None:
    document = asyncapi(CATALOG)
    document["operations"]["dispatches_send_parcels_dispatched"]["action"] = "shout"
    assert _asyncapi_errors(document) != []


def test_every_reference_of_the_asyncapi_document_leads_somewhere() -> None:
    document = asyncapi(CATALOG)

    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if "$ref" in node else []
            return own + [reference for value in node.values() for reference in references(value)]
        return [reference for value in node for reference in references(value)] if isinstance(node, list) else []

    assert references(document)
    for reference in references(document):
        target: Any = document
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]


def test_the_documents_name_the_brokers_of_up_and_of_compose() -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    (published,) = compose["services"]["broker"]["ports"]
    hosts = {"up": f"{HOST}:{Ports().kafka}", "compose": published.replace("${BROKER_PORT:-9092}:", "")}
    assert {name: server["host"] for name, server in asyncapi(CATALOG)["servers"].items()} == hosts
    servers = odcs(CATALOG, CATALOG.topic("parcels.dispatched.v1"))["servers"]
    assert {server["server"]: server["host"] for server in servers} == hosts


def test_the_diagram_shows_every_topic_deployable_table_and_dimension() -> None:
    text = diagram(CATALOG)
    for topic in CATALOG.topics.values():
        assert f'[/"{topic.name}"/]' in text
    assert '[("dimension: vans")]' in text
    assert '[("lake: parcels_dispatched<br>delta")]' in text
    assert "run_dispatches --> parcels_dispatched_v1" in text
    assert "parcels_dispatched_v1 --> run_dispatches_enriched" in text
    assert "dimension_vans --> run_dispatches_enriched" in text


def test_the_diagram_draws_dead_letters_of_those_who_write_them() -> None:
    lines = [line.split() for line in diagram(CATALOG).splitlines() if line.endswith("-.-> dead_letters")]
    assert [line[0].removeprefix("run_") for line in lines] == [
        "alerting",
        "delays_by_origin",
        "deliveries",
        "deliveries_enriched",
        "depots_served",
        "dispatches",
        "dispatches_by_punctuality",
        "dispatches_enriched",
        "dispatches_once",
        "final_delays_by_origin",
        "heavy_parcels",
        "lake",
        "late_parcels_of_vans",
        "losses_by_origin",
        "parcel_trips",
        "readings",
        "rounds_of_vans",
        "slowest_lines",
    ]


def test_the_diagram_stands_between_its_markers_and_nothing_else_changes() -> None:
    text = with_diagram(f"before\n{BEGIN}\nold\n{END}\nafter\n", CATALOG)
    assert text.startswith(f"before\n{BEGIN}\n```mermaid\nflowchart LR\n")
    assert text.endswith(f"```\n{END}\nafter\n")
    assert with_diagram(text, CATALOG) == text


def test_a_page_without_markers_is_told() -> None:
    with pytest.raises(ContractError, match="add the lines <!-- flow:begin --> and <!-- flow:end -->"):
        with_diagram("# The flow\n", CATALOG)


def test_no_page_is_told(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"there is no .*docs/flow\.md to hold the flow diagram"):
        documents(load_catalog(ContractFiles(tmp_path).root))


def test_a_topic_that_is_gone_leaves_no_document(tmp_path: Path) -> None:
    files = ContractFiles(tmp_path)
    page = tmp_path / "docs/flow.md"
    page.parent.mkdir()
    page.write_text(f"{BEGIN}\n{END}\n", encoding="utf-8")
    documents(load_catalog(files.root)).write()
    (files.root / "topics/parcels.delivered.v1.yaml").unlink()
    shutil.rmtree(files.root / "schemas/parcels.delivered.v1")
    documented = documents(load_catalog(files.root))
    stale = [Path("docs/asyncapi.yaml"), Path("docs/flow.md"), Path("docs/odcs/parcels.delivered.v1.yaml")]
    assert documented.write() == stale
    assert not (tmp_path / "docs/odcs/parcels.delivered.v1.yaml").exists()


def test_the_command_finds_nothing_stale() -> None:
    assert CliRunner().invoke(contracts_app, ["docs", "--check"]).exit_code == 0
