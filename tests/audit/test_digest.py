"""Digests: equal for equal values whatever their width, different for everything else."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.audit.sources.lake_table import without_views
from services.audit.values.digest import digests
from services.audit.values.shape import Shape, row_digests

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "here", "there"),
    [
        (7, pa.int32(), pa.int64()),
        (0.5, pa.float32(), pa.float64()),
        (-0.0, pa.float64(), pa.float64()),
        ("übermorgen", pa.string(), pa.large_string()),
        (NOON, pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
        (NOON.replace(tzinfo=None), pa.timestamp("ns"), pa.timestamp("us")),
        (date(2013, 1, 1), pa.date32(), pa.date32()),
        (Decimal("1.20"), pa.decimal128(6, 2), pa.decimal128(20, 2)),
        ([1, None], pa.list_(pa.int32()), pa.list_(pa.int64())),
        (None, pa.int32(), pa.string()),
    ],
)
def test_the_width_of_a_type_makes_no_difference(value: Any, here: pa.DataType, there: pa.DataType) -> None:
    assert digests(pa.array([value], here)) == digests(pa.array([value], there))


@pytest.mark.parametrize(
    ("value", "view", "plain"),
    [
        ("a", pa.string_view(), pa.string()),
        (["a", None], pa.list_(pa.string_view()), pa.list_(pa.string())),
        ({"a": b"1"}, pa.map_(pa.string_view(), pa.binary_view()), pa.map_(pa.string(), pa.binary())),
        (
            {"x": "a", "y": [{"z": "b"}]},
            pa.struct({"x": pa.string_view(), "y": pa.list_(pa.struct({"z": pa.string_view()}))}),
            pa.struct({"x": pa.string(), "y": pa.list_(pa.struct({"z": pa.string()}))}),
        ),
        (None, pa.list_(pa.string_view()), pa.list_(pa.string())),
    ],
)
def test_a_text_that_a_file_has_as_a_view_is_a_text(value: Any, view: pa.DataType, plain: pa.DataType) -> None:
    """deltalake writes them so where it changes a file."""
    column = without_views(pa.array([value, None], view))
    assert column.type == plain
    assert np.array_equal(digests(column), digests(pa.array([value, None], plain)))


def test_the_order_of_a_maps_entries_makes_none_that_of_a_list_does() -> None:
    maps = digests(pa.array([{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2, "b": 1}], pa.map_(pa.string(), pa.int64())))
    assert maps[0] == maps[1] != maps[2]
    lists = digests(pa.array([["a", "b"], ["b", "a"], ["a", "b"], ["ab"], ["a"], []], pa.list_(pa.string())))
    assert lists[0] == lists[2]
    assert len(set(lists.tolist())) == 5


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=20), st.integers(0, 20))
def test_every_text_has_its_own_wherever_it_stands(texts: list[bytes | None], start: int) -> None:
    found = digests(pa.array(texts, pa.binary()))
    assert len(set(found.tolist())) == len(set(texts))
    assert np.array_equal(digests(pa.array(texts, pa.binary())[start:]), found[start:])
    assert np.array_equal(found, np.concatenate([digests(pa.array([text], pa.binary())) for text in texts] or [found]))


@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1)), unique=True, max_size=50))
def test_every_number_has_its_own(numbers: list[int]) -> None:
    assert len(set(digests(pa.array(numbers, pa.int64())).tolist())) == len(numbers)


def test_two_fields_that_change_places_change_the_row() -> None:
    columns = {"a": digests(pa.array(["x"])), "b": digests(pa.array(["y"]))}
    swapped = {"a": columns["b"], "b": columns["a"]}
    assert row_digests(columns, 1) != row_digests(swapped, 1)


def test_a_field_that_was_added_with_a_default_is_the_same_as_the_null_of_older_rows() -> None:
    added = [{"name": "gate", "type": "string", "default": "none"}, {"name": "seat", "type": "int"}]
    shape = Shape(json.dumps({"type": "record", "name": "R", "fields": added}))
    seat = pa.array([1], pa.int32())

    def row(**columns: pa.Array) -> int:
        return int(row_digests(shape.field_digests({"seat": seat, **columns}, 1), 1)[0])

    assert (
        row() == row(gate=pa.array([None], pa.string())) == row(gate=pa.array(["none"])) != row(gate=pa.array(["B7"]))
    )


def test_a_union_of_several_types_is_left_out_by_name() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "odd", "type": ["null", "int", "string"]}]}
    assert Shape(json.dumps(schema)).skipped == ("odd",)
