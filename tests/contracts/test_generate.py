from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import ValidationError

from contracts import events
from contracts.catalog import load_catalog
from contracts.events import Severity, WeatherObserved
from contracts.generate import generate
from tests.contracts.files import ContractFiles


def test_the_committed_code_is_what_the_schemas_ask_for() -> None:
    stale = generate(load_catalog()).stale()
    assert stale == [], "run `headrace contracts generate`"


def test_a_second_major_version_has_a_handle_of_its_own(tmp_path: Path) -> None:
    files = ContractFiles(tmp_path)
    text = (files.root / "topics/flights.arrived.v1.yaml").read_text(encoding="utf-8")
    (files.root / "topics/flights.arrived.v2.yaml").write_text(text.replace(".v1", ".v2"), encoding="utf-8")
    schema = files.schema("flights.arrived.v1") | {"name": "FlightArrivedV2"}
    (files.root / "schemas/flights.arrived.v2").mkdir()
    files.write_schema("flights.arrived.v2", 1, schema)
    texts = generate(load_catalog(files.root)).texts
    handles = texts[Path("topics/__init__.py")]
    assert 'FLIGHTS_ARRIVED_V2: Final[Topic[events.FlightArrivedV2]] = Topic("flights.arrived.v2"' in handles
    assert "class FlightArrivedV2(BaseModel)" in texts[Path("events/flights_arrived_v2.py")]


def test_stale_files_are_written_and_left_overs_removed(tmp_path: Path) -> None:
    files = generate(load_catalog(ContractFiles(tmp_path).root))
    assert set(files.write()) == set(files.texts)
    assert files.stale() == []
    (files.folder / "events/flights_delayed.py").write_text("", encoding="utf-8")
    assert files.write() == [Path("events/flights_delayed.py")]


def test_events_are_frozen_closed_and_aware() -> None:
    reading = WeatherObserved(
        station="JFK",
        observed_at=datetime(2013, 1, 1, 6, tzinfo=UTC),
        precipitation_inches=Decimal("0.12"),
        visibility_miles=10.0,
    )
    with pytest.raises(ValidationError, match="frozen"):
        reading.station = "EWR"
    with pytest.raises(ValidationError, match="extra_forbidden"):
        WeatherObserved.model_validate(reading.model_dump() | {"snow": 1})
    with pytest.raises(ValidationError, match="timezone_aware"):
        WeatherObserved.model_validate(reading.model_dump() | {"observed_at": datetime(2013, 1, 1, 6)})
    assert Severity.critical in events.Severity
