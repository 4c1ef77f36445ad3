"""What the columns of records say of groups."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from services.alerting.rules.condition import Condition
from services.audit.declared.aggregates import Aggregate
from services.audit.records.groups import NEVER, NO_BATCH, Groups, Members
from services.audit.values.digest import digests


def test_records_are_told_by_their_columns() -> None:
    told = Aggregate.model_validate(
        {"window": {"of": "at", "begins": "begins", "ends": "ends"}, "by": ["origin"], "counts": "count"}
    )
    instants = pa.timestamp("ms", "UTC")
    columns = {
        "at": pa.array([1, 2, None], instants),
        "origin": pa.array(["a", None, "a"]),
        "delay": pa.array([5, 70, 5]),
    }
    good = np.array([True, False, True, True])
    members = Members.of_rows(told, Condition("delay > 9"), columns, good)
    assert members.of.tolist() == [1000, NEVER, 2000, NEVER]
    assert members.belong.tolist() == [False, False, True, False]
    assert members.by[0] == members.by[3] != members.by[2]
    assert Members.of_rows(told, None, columns, good).belong.tolist() == [True, False, True, False]
    gap = {"minutes": 30, "by": "origin", "of": {"a": 60}}
    sessions = Aggregate.model_validate(
        told.model_dump() | {"window": told.window.model_dump() | {"gap": gap}, "output": "append"}
    )
    until = [1_000 + 60 * 60_000_000, NEVER, 2_000 + 30 * 60_000_000, NEVER]
    assert Members.of_rows(sessions, None, columns, good).until.tolist() == until
    groups = Groups.of_rows(
        told,
        "id",
        [b"a/1", b"a/1", b"b", None],
        [b"a/1/run/0", b"a/1/run/x", b"c/run/12", None],
        {
            "id": pa.array(["a/1", "a/2", "b"]),
            "begins": pa.array([1, 2, None], instants),
            "ends": pa.array([1_000, 2_000, 3_000], pa.timestamp("us", "UTC")),
            "origin": columns["origin"],
            "count": pa.array([3, None, 1], pa.int64()),
        },
        np.array([True, True, True, False]),
    )
    assert groups.by[:3].tolist() == [members.by[0], members.by[2], members.by[0]]
    assert groups.begins.tolist() == [1000, 2000, NEVER, NEVER]
    assert groups.ends.tolist() == [1000, 2000, 3000, NEVER]
    assert groups.count.tolist() == [3, 0, 1, 0]
    assert groups.batch.tolist() == [0, NO_BATCH, 12, NO_BATCH]
    assert groups.has_own_id[[0, 2]].tolist() == [True, False]
    assert groups.has_own_key.tolist() == [True, False, True, True]
    assert groups.keys[int(digests(pa.array([b"a/1"]))[0])] == "a/1"
