"""What the contracts and the filters tell of distinct events, and what columns say of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from services.audit.declared.filters import load_filters
from services.audit.plan import Plan, plan
from services.audit.records.pairs import ALONE, Halves, Pairs
from services.audit.values.digest import digests
from services.audit.values.place import NOWHERE, code
from tests import sample

RAW, ONCE = "parcels.dispatched.v1", "parcels.dispatched.once.v1"


def _plan(filters: dict[str, str]) -> Plan:
    return plan(sample.catalog(), {}, filters, {}, {}, {})


def test_the_contracts_tell_which_fields_name_an_event_and_which_it_carries(tmp_path: Path) -> None:
    path = tmp_path / "filters.yaml"
    path.write_text(f"{ONCE}: late_minutes > 0\n")
    planned = _plan(load_filters(path, sample.catalog()))
    (once,) = planned.distinct
    (raw,) = [each for each in planned.raw if each.name == RAW]
    assert once.distinct is not None
    assert (once.name, once.by, [each.name for each in once.origins]) == (ONCE, "dispatches_once", [RAW])
    assert once.distinct.named_by == ("parcel_id",)
    assert {*once.distinct.fields} == {field["name"] for field in sample.catalog().parsed_schema(ONCE)["fields"]}
    assert once.unproven == ()
    assert raw.halves[ONCE].where == "late_minutes > 0"
    assert once.halves[ONCE] == once.distinct.says
    assert once.halves[ONCE].where is None, "what was let through is not filtered again"
    assert once in planned.roots
    assert once not in (*planned.raw, *planned.derived, *planned.joins)


def test_without_an_entry_every_event_is_expected() -> None:
    (once,) = _plan({}).distinct
    assert once.distinct is not None
    assert once.distinct.where is None


def test_an_id_names_one_record_of_the_one_topic() -> None:
    ids = [f"{RAW}/1/17".encode(), f"{RAW}/1/17+{RAW}/0/1".encode(), b"anything", None]
    columns = {"parcel_id": pa.array(["A", "B", "C", "D"])}
    keys = digests(pa.array(["A", "B", "C", "E"]))
    made = Pairs.of_rows([("parcel_id",)], [RAW], "parcel_id", keys, ids, columns, np.full(4, True))
    assert made.first.tolist() == [code(1, 17), NOWHERE, NOWHERE, NOWHERE]
    assert made.second.tolist() == [ALONE] * 4
    assert made.has_own_key.tolist() == [True, True, True, False]
    assert len({*made.says_first.tolist()}) == 4
    assert made.says_second.tolist() == [0] * 4


def test_events_are_equal_by_their_names_alone_and_say_the_same_on_both_topics() -> None:
    (once,) = _plan({}).distinct
    assert once.distinct is not None
    at = pa.array([datetime(2013, 1, 1, tzinfo=UTC)] * 3, pa.timestamp("ms", "UTC"))
    columns = {name: pa.array(["A", "B", "A"]) for name in once.distinct.fields} | {"dispatched_at": at}
    columns["courier"] = pa.array(["X", "X", "Y"])
    good = np.full(3, True)
    raw, own = (
        Halves.of_rows(each, "dispatched_at", None, columns, good)
        for each in (once.distinct.brings, once.distinct.says)
    )
    assert raw.by.tolist() == own.by.tolist()
    assert raw.by[0] == raw.by[2] != raw.by[1]
    assert raw.says.tolist() == own.says.tolist()
    assert len({*raw.says.tolist()}) == 3
