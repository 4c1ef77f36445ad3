"""Which batch of which run a state is read behind, by what lies in the bucket."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from spark.runtime.errors import StateUnreadable
from spark.state.checkpoint import Objects, committed

TEN = datetime(2026, 1, 1, 10, tzinfo=UTC)


def lying(*paths: str) -> Objects:
    """Each of ten bytes, written a minute behind the one before; the name of the run is the first part."""
    written = [(each.partition("/"), TEN + timedelta(minutes=minute)) for minute, each in enumerate(paths)]
    return {(run, path): (10, at) for (run, _, path), at in written}


WHOLE = ("a/offsets/0", "a/state/0/_metadata/metadata", "a/state/0/0/1.changelog", "a/state/0/1/left-x/1.changelog")


def test_it_is_the_last_batch_that_was_committed() -> None:
    found = committed(lying(*WHOLE, "a/commits/0", "a/offsets/1", "a/commits/1", "a/offsets/2"), None)
    assert found is not None
    assert (found.run, found.batch, found.coming) == ("a", 1, 2)
    assert found.committed_at == TEN + timedelta(minutes=6)
    assert found.stored_bytes == {0: 10, 1: 10}


def test_of_two_runs_it_is_that_which_committed_last() -> None:
    there = lying(*WHOLE, "a/commits/0", "b/offsets/0", "b/commits/0", "c/offsets/", "c/commits/")
    found = committed(there, None)
    assert found is not None
    assert (found.run, found.batch, found.coming) == ("b", 0, None)


def test_a_run_without_a_batch_has_no_state() -> None:
    assert committed(lying("a/note", "a/offsets/0"), None) is None
    # A commit whose plan is lost is no batch either.
    assert committed(lying("a/note", "a/commits/0"), None) is None


def test_a_batch_is_told_among_which_it_may_be() -> None:
    there = lying("a/offsets/3", "a/commits/3", "a/offsets/4", "a/commits/4", "a/offsets/5")
    chosen = committed(there, 3)
    assert chosen is not None
    assert (chosen.batch, chosen.coming) == (3, 5)
    for batch in (2, 5):
        with pytest.raises(StateUnreadable, match=f"the run a has no batch {batch}: its checkpoint has 3 to 4"):
            committed(there, batch)
