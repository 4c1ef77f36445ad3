"""What becomes of a dimension's source file, bytes in, table or reason out."""

from __future__ import annotations

import time
import tracemalloc
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.definitions.dimension import Column, Validity
from services.dimensions.parse import parse
from services.dimensions.rejected import Rejected
from tests import sample

CATALOG = sample.catalog()
VANS = CATALOG.dimension("vans")
HEADER = "plate,year,type,manufacturer,model,engines,seats,speed,engine"


def a_van(*, van_id: str = "N1", year: str = "2004", model: str = "G-320", seats: str = "182") -> str:
    return f"{van_id},{year},Panel van,GALATI,{model},2,{seats},NA,diesel"


def a_file(*rows: str, header: str = HEADER) -> bytes:
    return "\n".join([header, *rows]).encode()


@pytest.mark.parametrize(("name", "rows"), [("couriers", 16), ("depots", 60), ("vans", 250)])
def test_the_tables_of_the_sample_fit_their_contracts(name: str, rows: int) -> None:
    contract = CATALOG.dimension(name)
    table = parse(contract, (sample.TABLES / contract.made_of).read_bytes())
    assert not isinstance(table, Rejected)
    assert table.num_rows == rows
    assert table.column_names == [column.name for column in contract.columns]


def test_columns_get_the_contract_s_names_types_and_nulls() -> None:
    table = parse(VANS, a_file(a_van(year="NA"), a_van(van_id='"N2"', seats="55")))
    assert not isinstance(table, Rejected)
    assert table.to_pylist() == [
        {
            "van_id": van_id,
            "built_year": year,
            "type": "Panel van",
            "manufacturer": "GALATI",
            "model": "G-320",
            "engines": 2,
            "seats": seats,
            "engine_type": "diesel",
        }
        for van_id, year, seats in [("N1", None, 182), ("N2", 2004, 55)]
    ]


def test_of_a_key_of_several_columns_all_must_be_the_same_to_stand_twice() -> None:
    contract = VANS.model_copy(update={"key": ("van_id", "model")})
    rows = [a_van(), a_van(model="G-319"), a_van(van_id="N2"), a_van(model="G-319", seats="1")]
    table = parse(contract, a_file(*rows[:3]))
    assert not isinstance(table, Rejected)
    assert [table.column(name).to_pylist() for name in contract.key] == [
        ["N1", "N1", "N2"],
        ["G-320", "G-319", "G-320"],
    ]
    expected = Rejected("DuplicateKey", "lines 3 and 5 have the same key: N1, G-319")
    assert parse(contract, a_file(*rows)) == expected


IN_TIME = VANS.model_copy(
    update={
        "valid": Validity.model_validate({"from": "since", "until": "until"}),
        "columns": (
            *VANS.columns,
            Column(name="since", source="since", type="timestamp", nullable=False, description="From when on."),
            Column(name="until", source="until", type="timestamp", nullable=True, description="Until when."),
        ),
    }
)


def in_time(*rows: tuple[str, str, str]) -> bytes:
    """Rows of a van id and the time for which they hold."""
    return a_file(
        *(f"{a_van(van_id=van_id)},{since},{until}" for van_id, since, until in rows), header=f"{HEADER},since,until"
    )


def test_a_key_has_several_rows_that_hold_at_different_times() -> None:
    rows = (
        ("N1", "2013-01-05T00:00:00+01:00", "NA"),
        ("N2", "2013-01-02T00:00Z", "NA"),
        ("N1", "2012-01-01T00:00Z", "2013-01-04T23:00Z"),
    )
    table = parse(IN_TIME, in_time(*rows))
    assert not isinstance(table, Rejected), table
    assert table.column("since").to_pylist() == [
        datetime(2013, 1, 4, 23, tzinfo=UTC),
        datetime(2013, 1, 2, tzinfo=UTC),
        datetime(2012, 1, 1, tzinfo=UTC),
    ]
    assert table.column("until").to_pylist() == [None, None, datetime(2013, 1, 4, 23, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("rows", "reason", "words"),
    [
        ([("N1", "2013-01-05T00:00Z", "NA"), ("N2", "2013-01-05T00:00Z", "NA"), ("N1", "2013-01-06T00:00Z", "NA")], "Overlap", "lines 2 and 4 have the same key and hold at the same time: N1"),
        ([("N1", "2013-01-06T00:00Z", "NA"), ("N1", "2013-01-05T00:00Z", "2013-01-06T00:00:00.001Z")], "Overlap", "lines 2 and 3"),
        ([("N1", "2013-01-05T00:00Z", "NA"), ("N1", "2013-01-05T00:00Z", "NA")], "Overlap", "lines 2 and 3"),
        ([("N2", "2013-01-05T00:00Z", "NA"), ("N1", "2013-01-05T00:00Z", "2013-01-05T00:00Z")], "NoTime", "line 3: until is not after since"),
        ([("N1", "2013-01-05T00:00", "NA")], "WrongType", "'2013-01-05T00:00' is no timestamp"),
        ([("N1", "0001-01-01T00:00+23:00", "NA")], "WrongType", "is no timestamp"),
        ([("N1", "yesterday", "NA")], "WrongType", "'yesterday' is no timestamp"),
        ([("N1", "NA", "NA")], "MissingValue", "'since' must have a value"),
    ],
)  # fmt: skip
def test_rows_that_hold_at_no_time_or_at_the_same_are_rejected(
    rows: list[tuple[str, str, str]], reason: str, words: str
) -> None:
    outcome = parse(IN_TIME, in_time(*rows))
    assert isinstance(outcome, Rejected)
    assert outcome.reason == reason
    assert words in outcome.explanation


NONSENSE = {
    "a text longer than a record has room for": (
        a_file(a_van(model="é" * 501)),
        "TooLong",
        "line 2, column 'model': 1002 bytes",
    ),
    "no bytes": (b"", "Empty", "no header"),
    "only a header": (a_file(), "Empty", "no rows"),
    "a column less": (a_file(a_van(), header=HEADER.replace("seats", "chairs")), "MissingColumn", "'seats'"),
    "a column twice": (a_file(a_van(), header=HEADER.replace("speed", "seats")), "Unparseable", "2 times"),
    "text for a number": (a_file(a_van(), a_van(van_id="N2", seats="many")), "WrongType", "line 3"),
    "a fraction for an int": (a_file(a_van(seats="1.5")), "WrongType", "'1.5' is no int"),
    "an int of 33 bits": (a_file(a_van(seats="4294967296")), "WrongType", "no int"),
    "digits of another script": (a_file(a_van(seats="١٢")), "WrongType", "no int"),
    "a value missing": (a_file(a_van(seats="NA")), "MissingValue", "'seats'"),
    "a key missing": (a_file(a_van(van_id="")), "MissingValue", "'plate'"),
    "a key twice": (a_file(a_van(), a_van(van_id="N2"), a_van()), "DuplicateKey", "lines 2 and 4"),
    "a value too many": (a_file(a_van() + ",1"), "Unparseable", "line 2 has 10 values"),
    "an open quote": (a_file(a_van(model='"G-320')), "Unparseable", "not CSV"),
    "text in Latin-1": (a_file(a_van(model="Étoile")).decode().encode("latin-1"), "Unparseable", "UTF-8"),
    "a picture": (b"\x89PNG\r\n\x1a\n\x00\x00", "Unparseable", "byte 8 is 0x00"),
    "zeros": (bytes(100), "Unparseable", "byte 0 is 0x00"),
    "a row that never ends": (
        HEADER.encode() + b"\n" + b'"ab\n",' * 200_000,
        "Unparseable",
        "line 174764: a row has more than 1048576 characters",
    ),
    "a header that never ends": (b"ab," * 400_000, "Unparseable", "line 0: a row has more than"),
    "a JSON file": (b'[{"plate": "N1"}]', "MissingColumn", "'plate'"),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_rejected_by_name(name: str) -> None:
    body, reason, words = NONSENSE[name]
    outcome = parse(VANS, body)
    assert isinstance(outcome, Rejected)
    assert outcome.reason == reason
    assert words in outcome.explanation


@pytest.mark.parametrize("value", ["nan", "inf", "1e999", "1_0", " 1", "0x1", "--1", ".", "0" * 401])
def test_a_double_is_a_finite_decimal_number(value: str) -> None:
    depots = CATALOG.dimension("depots")
    outcome = parse(depots, f"code,name,lat,lon,alt,tzone\nNTH,North Yard,{value},-73.8,13,NA\n".encode())
    assert isinstance(outcome, Rejected)
    assert outcome.reason == "WrongType"


def test_what_is_nearly_a_number_is_refused_at_once() -> None:
    begun = time.process_time()
    parse(CATALOG.dimension("depots"), f"code,name,lat,lon,alt,tzone\nNTH,North Yard,{'1' * 8_000}x,1,1,NA\n".encode())
    assert time.process_time() - begun < 0.5


def test_rows_are_held_as_python_s_values_only_for_a_while() -> None:
    body = a_file(*(a_van(van_id=f"N{number}") for number in range(100_000)))
    tracemalloc.start()
    try:
        table = parse(VANS, body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not isinstance(table, Rejected)
    assert table.num_rows == 100_000
    assert peak < 2 * len(body)


@given(st.binary(max_size=2_000) | st.text(max_size=500).map(lambda text: a_file(text)))
def test_no_bytes_at_all_break_it(body: bytes) -> None:
    parse(VANS, body)
