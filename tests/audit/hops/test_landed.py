"""A table with a row of each record beside its compacted topic."""

from __future__ import annotations

import numpy as np
import pytest

from services.audit.hops.landed import Landing
from services.audit.records.window import Span, Window
from tests.audit.hops.test_newest import TOPIC, Record, read, rows


@pytest.mark.parametrize(("expired_ms", "told"), [(0, [("lost", f"{TOPIC}/0/1")]), (1, [])])
def test_a_bad_record_outlives_its_dead_letter(expired_ms: int, told: list[tuple[str, str]]) -> None:
    none = np.zeros(0, np.int64)
    log = [read({0: Record("b", "good"), 1: Record("a", "bad")})]

    def landing(*of: tuple[str, int]) -> Landing:
        return Landing(
            Window(TOPIC, {0: Span(0, 0, 2, 0)}),
            TOPIC,
            "depots",
            log,
            [rows([("b", 0), *of])],
            {0: 2},
            own_coordinate=True,
            is_compacted=True,
            expired_ms=expired_ms,
        )

    right, before = landing(), np.zeros(2, np.bool_)
    assert [(each.kind, each.coordinate) for each in right.findings(none, none, none, before)] == told
    noted = {note: count for note, count in right.tallies[0].notes.items() if count}
    assert noted == ({} if told else {"that can't be decoded, whose dead letters are deleted by now": 1})
    # It has no row in any case.
    assert [each.kind for each in landing(("a", 1)).findings(none, none, none, before)] == ["changed"]
