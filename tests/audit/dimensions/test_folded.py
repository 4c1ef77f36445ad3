"""Versions of a dimension beside the history of its topic, whatever compaction has removed of that, and records that were planted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from contracts.definitions.dimension import DimensionContract
from services.audit.hops.folded import Folded
from services.audit.records.history import History, Told
from services.audit.sources.dimension_table import Published
from tests.services.following import couriers

TOPIC, TOPIC_ID = "couriers.named.v1", "a"
CONTRACT: DimensionContract = couriers(TOPIC)


class Record(NamedTuple):
    key: str
    courier: str
    name: str | None
    """None takes the key away."""


Log = Sequence[Record]
"""Of one partition; a record's place is its offset, and its time."""


def fold(log: Log, upto: int) -> dict[str, str]:
    """Rows as the dimensions service makes them, courier by courier."""
    newest: dict[str, tuple[int, Record]] = {}
    for offset, record in enumerate(log[:upto]):
        newest[record.key] = offset, record
    rows: dict[str, str] = {}
    for _, record in sorted(newest.values()):
        if record.name is not None:
            rows[record.courier] = record.name
    return rows


def compacted(log: Log, upto: int) -> dict[int, Record]:
    """What is left behind a pass over the records before an offset."""
    last = {record.key: offset for offset, record in enumerate(log[:upto])}
    return {offset: record for offset, record in enumerate(log) if offset >= upto or last[record.key] == offset}


def history(log: Log, there: Mapping[int, Record]) -> History:
    made = History(CONTRACT, {0: len(log)})
    for offset, record in sorted(there.items()):
        row = None if record.name is None else (record.courier, record.name)
        made.take(0, record.key.encode(), Told(offset, offset, row))
    return made


def findings(of: History, rows: Mapping[str, str], upto: int, **said: Any) -> list[tuple[str, str]]:
    folded = Folded(CONTRACT, CONTRACT.digest("{}"), TOPIC, TOPIC_ID, of)
    published = Published(
        **{"contract": CONTRACT.digest("{}"), "topic": TOPIC, "topic_id": TOPIC_ID, "offsets": {0: upto}, **said}
    )
    table = pa.table(
        {"courier": [*rows], "name": [*rows.values()]}, pa.schema({"courier": pa.string(), "name": pa.string()})
    )
    return [(each.kind, each.coordinate) for each in folded.findings(3, published, table)]


def logs(keys: int) -> st.SearchStrategy[list[Record]]:
    """With so many keys for each courier."""
    return st.lists(
        st.builds(
            lambda courier, key, name: Record(f"{courier}{key}", courier, name),
            st.sampled_from("abc"),
            st.integers(0, keys - 1),
            st.none() | st.sampled_from("xyz"),
        ),
        max_size=14,
    )


@given(logs(1), st.data())
def test_a_right_version_is_right_whatever_compaction_has_removed_since(log: list[Record], data: st.DataObject) -> None:
    upto, cleaned = data.draw(st.integers(0, len(log))), data.draw(st.integers(0, len(log)))
    assert findings(history(log, compacted(log, cleaned)), fold(log, upto), upto) == []


@given(logs(1), st.data())
def test_a_right_version_is_right_when_records_without_a_value_are_gone_too(
    log: list[Record], data: st.DataObject
) -> None:
    upto, cleaned = data.draw(st.integers(0, len(log))), data.draw(st.integers(0, len(log)))
    there = {at: each for at, each in compacted(log, cleaned).items() if at >= cleaned or each.name is not None}
    assert findings(history(log, there), fold(log, upto), upto) == []


@given(logs(3), st.data())
def test_so_is_one_where_several_keys_tell_of_a_row_while_all_records_are_there(
    log: list[Record], data: st.DataObject
) -> None:
    upto = data.draw(st.integers(0, len(log)))
    assert findings(history(log, dict(enumerate(log))), fold(log, upto), upto) == []


@given(logs(1), st.data())
def test_any_difference_is_found_in_a_version_of_the_whole_topic(log: list[Record], data: st.DataObject) -> None:
    right = fold(log, len(log))
    wrong = data.draw(st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xyz")))
    cleaned = data.draw(st.integers(0, len(log)))
    kinds = {kind for kind, _ in findings(history(log, compacted(log, cleaned)), wrong, len(log))}
    expected = {"lost"} if right.keys() - wrong.keys() else set()
    expected |= {"phantom"} if wrong.keys() - right.keys() else set()
    expected |= {"changed"} if any(right[key] != wrong[key] for key in right.keys() & wrong.keys()) else set()
    assert kinds == expected


@given(logs(1), st.data())
def test_and_in_an_older_one_of_which_the_topic_still_has_the_record(log: list[Record], data: st.DataObject) -> None:
    upto, cleaned = data.draw(st.integers(0, len(log))), data.draw(st.integers(0, len(log)))
    there = compacted(log, cleaned)
    held = {record.courier for at, record in there.items() if at < upto and record.name is not None}
    right, wrong = fold(log, upto), data.draw(st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz")))
    sure = {courier for courier in held & right.keys() if wrong.get(courier) != right[courier]}
    found = {kind for kind, _ in findings(history(log, there), wrong, upto)} - {"phantom"}
    assert found == {"changed" if courier in wrong else "lost" for courier in sure}


LOG = [Record("a", "a", "x"), Record("b", "b", "x"), Record("a", "a", "y")]
ALL = history(LOG, dict(enumerate(LOG)))


def test_a_finding_names_the_first_record_that_tells_otherwise() -> None:
    assert findings(ALL, {"a": "x", "b": "y"}, 3) == [("changed", f"{TOPIC}/0/1")]
    assert findings(ALL, {}, 3) == [("lost", f"{TOPIC}/0/1")]
    assert findings(ALL, {"a": "y", "b": "x", "c": "x"}, 3) == [("phantom", CONTRACT.location)]


def test_a_version_that_is_ahead_of_what_it_says_is_found() -> None:
    assert findings(ALL, {"a": "y", "b": "x"}, 2) == [("changed", f"{TOPIC}/0/0")]


def test_what_another_contract_or_another_topic_was_published_by_is_not_compared() -> None:
    for said in (
        {"contract": "other"},
        {"contract": None},
        {"topic_id": "b"},
        {"offsets": {0: 4}},
        {"offsets": {1: 1}},
    ):
        assert findings(ALL, {}, 3, **said) == []
