"""What becomes of a dimension's source file, bytes in, table or reason out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.definitions.catalog import load_catalog
from services.dimensions.parse import parse
from services.dimensions.rejected import Rejected
from services.nycflights.tables import data_folder

CATALOG = load_catalog()
PLANES = CATALOG.dimension("planes")
HEADER = "tailnum,year,type,manufacturer,model,engines,seats,speed,engine"


def a_plane(*, tail_number: str = "N1", year: str = "2004", model: str = "A320", seats: str = "182") -> str:
    return f"{tail_number},{year},Fixed wing multi engine,AIRBUS,{model},2,{seats},NA,Turbo-fan"


def a_file(*rows: str, header: str = HEADER) -> bytes:
    return "\n".join([header, *rows]).encode()


@pytest.mark.parametrize(("name", "rows"), [("airlines", 16), ("airports", 1_458), ("planes", 3_322)])
def test_the_data_set_s_own_tables_fit_their_contracts(name: str, rows: int) -> None:
    contract = CATALOG.dimension(name)
    table = parse(contract, (data_folder() / contract.source).read_bytes())
    assert not isinstance(table, Rejected)
    assert table.num_rows == rows
    assert table.column_names == [column.name for column in contract.columns]


def test_columns_get_the_contract_s_names_types_and_nulls() -> None:
    table = parse(PLANES, a_file(a_plane(year="NA"), a_plane(tail_number='"N2"', seats="55")))
    assert not isinstance(table, Rejected)
    assert table.to_pylist() == [
        {
            "tail_number": tail_number,
            "built_year": year,
            "type": "Fixed wing multi engine",
            "manufacturer": "AIRBUS",
            "model": "A320",
            "engines": 2,
            "seats": seats,
            "engine_type": "Turbo-fan",
        }
        for tail_number, year, seats in [("N1", None, 182), ("N2", 2004, 55)]
    ]


def test_of_a_key_of_several_columns_all_must_be_the_same_to_stand_twice() -> None:
    contract = PLANES.model_copy(update={"key": ("tail_number", "model")})
    rows = [a_plane(), a_plane(model="A319"), a_plane(tail_number="N2"), a_plane(model="A319", seats="1")]
    table = parse(contract, a_file(*rows[:3]))
    assert not isinstance(table, Rejected)
    assert [table.column(name).to_pylist() for name in contract.key] == [["N1", "N1", "N2"], ["A320", "A319", "A320"]]
    expected = Rejected("DuplicateKey", "lines 3 and 5 have the same key: N1, A319")
    assert parse(contract, a_file(*rows)) == expected


NONSENSE = {
    "a text longer than a record has room for": (
        a_file(a_plane(model="é" * 501)),
        "TooLong",
        "line 2, column 'model': 1002 bytes",
    ),
    "no bytes": (b"", "Empty", "no header"),
    "only a header": (a_file(), "Empty", "no rows"),
    "a column less": (a_file(a_plane(), header=HEADER.replace("seats", "chairs")), "MissingColumn", "'seats'"),
    "a column twice": (a_file(a_plane(), header=HEADER.replace("speed", "seats")), "Unparseable", "2 times"),
    "text for a number": (a_file(a_plane(), a_plane(tail_number="N2", seats="many")), "WrongType", "line 3"),
    "a fraction for an int": (a_file(a_plane(seats="1.5")), "WrongType", "'1.5' is no int"),
    "an int of 33 bits": (a_file(a_plane(seats="4294967296")), "WrongType", "no int"),
    "digits of another script": (a_file(a_plane(seats="١٢")), "WrongType", "no int"),
    "a value missing": (a_file(a_plane(seats="NA")), "MissingValue", "'seats'"),
    "a key missing": (a_file(a_plane(tail_number="")), "MissingValue", "'tailnum'"),
    "a key twice": (a_file(a_plane(), a_plane(tail_number="N2"), a_plane()), "DuplicateKey", "lines 2 and 4"),
    "a value too many": (a_file(a_plane() + ",1"), "Unparseable", "line 2 has 10 values"),
    "an open quote": (a_file(a_plane(model='"A320')), "Unparseable", "not CSV"),
    "text in Latin-1": (a_file(a_plane(model="Caravelle Étoile")).decode().encode("latin-1"), "Unparseable", "UTF-8"),
    "a picture": (b"\x89PNG\r\n\x1a\n\x00\x00", "Unparseable", "byte 8 is 0x00"),
    "zeros": (bytes(100), "Unparseable", "byte 0 is 0x00"),
    "a JSON file": (b'[{"tailnum": "N1"}]', "MissingColumn", "'tailnum'"),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_rejected_by_name(name: str) -> None:
    body, reason, words = NONSENSE[name]
    outcome = parse(PLANES, body)
    assert isinstance(outcome, Rejected)
    assert outcome.reason == reason
    assert words in outcome.explanation


@pytest.mark.parametrize("value", ["nan", "inf", "1e999", "1_0", " 1", "0x1", "--1", "."])
def test_a_double_is_a_finite_decimal_number(value: str) -> None:
    airports = CATALOG.dimension("airports")
    outcome = parse(airports, f"faa,name,lat,lon,alt,tzone\nJFK,Kennedy,{value},-73.8,13,NA\n".encode())
    assert isinstance(outcome, Rejected)
    assert outcome.reason == "WrongType"


@given(st.binary(max_size=2_000) | st.text(max_size=500).map(lambda text: a_file(text)))
def test_no_bytes_at_all_break_it(body: bytes) -> None:
    parse(PLANES, body)
