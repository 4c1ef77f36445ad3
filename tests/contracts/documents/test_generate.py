from __future__ import annotations

import ast
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from contracts.definitions.catalog import load_catalog
from contracts.documents.python import generate
from contracts.errors import ContractError
from tests.contracts.files import ContractFiles
from tests.sample import events
from tests.sample.events import DepotObserved, Severity


def test_the_committed_code_is_what_the_schemas_ask_for() -> None:
    stale = generate(load_catalog()).stale()
    assert stale == [], "run `headrace contracts generate`"


def test_a_second_major_version_has_a_handle_of_its_own(tmp_path: Path) -> None:
    files = ContractFiles(tmp_path)
    text = (files.root / "topics/parcels.delivered.v1.yaml").read_text(encoding="utf-8")
    (files.root / "topics/parcels.delivered.v2.yaml").write_text(text.replace(".v1", ".v2"), encoding="utf-8")
    schema = files.schema("parcels.delivered.v1") | {"name": "ParcelDeliveredV2"}
    (files.root / "schemas/parcels.delivered.v2").mkdir()
    files.write_schema("parcels.delivered.v2", 1, schema)
    texts = generate(load_catalog(files.root)).texts
    handles = texts[Path("topics/__init__.py")]
    assert 'PARCELS_DELIVERED_V2: Final[Topic[events.ParcelDeliveredV2]] = Topic("parcels.delivered.v2"' in handles
    assert "class ParcelDeliveredV2(BaseModel)" in texts[Path("events/parcels_delivered_v2.py")]


@pytest.mark.parametrize(
    "text",
    [
        'It ends in "quotes"',
        "It ends in a backslash \\",
        'One """ and another """',
        '\\"""',
        r"\N \x \u12 \777",
        "Two\nlines, a tab\t, a bell\a and no more\0",
    ],
)
def test_whatever_a_contract_says_of_itself_is_a_docstring_and_no_code(tmp_path: Path, text: str) -> None:
    files = ContractFiles(tmp_path)
    path = files.root / "topics/parcels.dispatched.v1.yaml"
    contract = yaml.safe_load(path.read_text(encoding="utf-8")) | {"description": text}
    path.write_text(yaml.safe_dump(contract), encoding="utf-8")
    schema = files.schema("parcels.dispatched.v1") | {"doc": text}
    schema["fields"][0]["doc"] = text
    files.write_schema("parcels.dispatched.v1", 1, schema)
    texts = generate(load_catalog(files.root)).texts

    handles = ast.parse(texts[Path("topics/__init__.py")]).body
    (at,) = (number for number, each in enumerate(handles) if ast.unparse(each).startswith("PARCELS_DISPATCHED:"))
    assert _texts(handles[at + 1 : at + 2]) == [text]

    module = ast.parse(texts[Path("events/parcels_dispatched.py")])
    (event,) = (each for each in module.body if isinstance(each, ast.ClassDef))
    # The models' generator lays out several lines anew.
    assert [each.split() for each in _texts(event.body)[:2]] == [text.split()] * 2


def _texts(statements: list[ast.stmt]) -> list[str]:
    """The texts that stand alone, as docstrings do."""
    values = [each.value for each in statements if isinstance(each, ast.Expr)]
    return [str(value.value) for value in values if isinstance(value, ast.Constant)]


def test_half_of_a_character_is_no_text(tmp_path: Path) -> None:
    files = ContractFiles(tmp_path)
    files.replace("schemas/parcels.dispatched.v1/1.avsc", "A parcel left", r"\ud800")
    with pytest.raises(ContractError, match=r"parcels.dispatched.v1/1.avsc: half of a character"):
        load_catalog(files.root)


def test_stale_files_are_written_and_left_overs_removed(tmp_path: Path) -> None:
    files = generate(load_catalog(ContractFiles(tmp_path).root))
    assert set(files.write()) == set(files.texts)
    assert files.stale() == []
    (files.folder / "events/parcels_delayed.py").write_text("", encoding="utf-8")
    assert files.write() == [Path("events/parcels_delayed.py")]


def test_events_are_frozen_closed_and_aware() -> None:
    reading = DepotObserved(
        station="NTH",
        observed_at=datetime(2013, 1, 1, 6, tzinfo=UTC),
        precipitation_inches=Decimal("0.12"),
        visibility_miles=10.0,
    )
    with pytest.raises(ValidationError, match="frozen"):
        reading.station = "EST"
    with pytest.raises(ValidationError, match="extra_forbidden"):
        DepotObserved.model_validate(reading.model_dump() | {"snow": 1})
    with pytest.raises(ValidationError, match="timezone_aware"):
        DepotObserved.model_validate(reading.model_dump() | {"observed_at": datetime(2013, 1, 1, 6)})
    assert Severity.critical in events.Severity
