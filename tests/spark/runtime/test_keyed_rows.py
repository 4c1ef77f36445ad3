"""Batches of rows as they come to a Python worker, and as they leave it, key by key."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import Row

from spark.runtime.workers.keyed_rows import batched, rows_by_key

_MADE = pa.struct([("name", pa.string()), ("value", pa.binary()), ("fields", pa.struct([("count", pa.int32())]))])


def made(name: str, bytes_: int = 1) -> Row:
    return Row(name=name, value=b"x" * bytes_, fields=Row(count=1))


def test_the_rows_of_a_key_are_together_though_they_come_in_two_batches() -> None:
    batches = [
        pa.RecordBatch.from_pydict({"key": keys, "value": values})
        for keys, values in ((["a", "b"], [1, 2]), (["b", "b"], [3, 4]), ([None], [5]))
    ]
    found = [(key, [row.value for row in rows]) for key, rows in rows_by_key(batches, [0])]
    assert found == [(("a",), [1]), (("b",), [2, 3, 4]), ((None,), [5])]


def test_rows_that_are_not_taken_are_not_those_of_the_next_key() -> None:
    batch = pa.RecordBatch.from_pydict({"key": ["a", "a", "b"], "value": [1, 2, 3]})
    taken = rows_by_key([batch], [0])
    assert next(taken)[0] == ("a",)
    key, rows = next(taken)
    assert (key, [row.value for row in rows]) == (("b",), [3])


@pytest.mark.parametrize("keys", [[5], [1, 1, 1, 1, 1], [0, 3, 0, 2, 0]])
def test_what_is_made_of_the_keys_leaves_in_batches_of_so_many_rows(keys: list[int]) -> None:
    rows = [[made(f"{number}/{row}") for row in range(count)] for number, count in enumerate(keys)]
    found = list(batched(rows, _MADE, 2))
    assert [batch.num_rows for batch in found] == [2, 2, 1]
    names = [row.name for of_key in rows for row in of_key]
    assert [name for batch in found for name in batch.column("name").to_pylist()] == names
    assert found[0].column("fields").to_pylist() == [{"count": 1}, {"count": 1}]


def test_a_batch_ends_when_its_rows_are_large() -> None:
    rows = [[made("a", 5 << 20), made("b", 5 << 20), made("c")]]
    assert [batch.num_rows for batch in batched(rows, _MADE, 1000)] == [2, 1]


def test_nothing_made_is_one_batch_without_rows() -> None:
    (found,) = batched([[], []], _MADE, 2)
    assert (found.num_rows, found.schema.names) == (0, ["name", "value", "fields"])


def test_rows_are_made_only_as_they_leave() -> None:
    asked = []

    def of_a_timer() -> Iterator[Row]:
        for number in range(1_000):
            asked.append(number)
            yield made(str(number))

    assert next(batched([of_a_timer()], _MADE, 10)).num_rows == 10
    assert len(asked) == 10
