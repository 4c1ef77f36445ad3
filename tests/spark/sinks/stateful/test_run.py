"""Which run of an aggregate goes on, by what positions and checkpoint say."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from contracts.servers.ranges import OffsetRange
from spark.sinks.stateful.run import Checkpoint, fault_of
from spark.sinks.stateful.state_note import StateNote

RUN, OTHER, PLAN = "0123abcd", "89abcdef", "plan"
TAKEN = {0: 20, 1: 20}
"""Of the topic raw."""


def a_note(batch: int, run: str = RUN, partitions: int = 2) -> StateNote:
    return StateNote(epoch=1, run=run, batch=batch, partitions=partitions, begins="first", plan=PLAN)


def notes(*batches: int) -> dict[int, StateNote]:
    return dict(enumerate(map(a_note, batches)))


def a_checkpoint(planned: int | None, committed: int | None, run: str = RUN) -> Mapping[str, Checkpoint]:
    ranges = tuple(OffsetRange("raw", partition, 10, 20) for partition in (0, 1)) if planned is not None else ()
    return {run: Checkpoint(run, planned, committed, ranges)}


@pytest.mark.parametrize(
    ("batches", "planned", "committed", "taken"),
    [
        ((-1, -1), None, None, {0: 0, 1: 0}),  # a run that has not begun
        ((-1, -1), 0, None, {0: 10, 1: 10}),  # planned, and nothing written
        ((0, -1), 0, None, {0: 10, 1: 10}),  # cut off between two partitions
        ((0, 0), 0, None, {0: 20, 1: 13}),  # cut off in what is set aside
        ((0, 0), 0, None, TAKEN),  # cut off before the checkpoint's commit
        ((0, 0), 0, 0, TAKEN),  # between two batches
        ((4, 4), 5, 4, {0: 10, 1: 10}),
        ((5, 4), 5, 4, {0: 10, 1: 10}),
        ((5, 5), 5, 3, TAKEN),  # a commit file is gone, and a later batch was planned
    ],
)
def test_every_moment_at_which_it_may_be_cut_off_is_one_to_go_on_from(
    batches: tuple[int, ...], planned: int | None, committed: int | None, taken: Mapping[int, int]
) -> None:
    assert fault_of(notes(*batches), a_checkpoint(planned, committed), {"raw": taken}, PLAN) is None


@pytest.mark.parametrize(
    ("batches", "planned", "committed", "taken", "told"),
    [
        ((5, 5), 3, 3, TAKEN, "has written batch 5 .* goes on with batch 4"),  # an older checkpoint
        ((5, 3), 5, 4, TAKEN, "has written batch 3 .* goes on with batch 5"),  # a partition is behind
        ((5, 5), None, None, TAKEN, "has written batch 5 .* its checkpoint is gone"),
        ((0, 0), None, None, TAKEN, "its checkpoint is gone"),
        ((5, 5), 5, 5, {0: 20, 1: 19}, "taken raw/1 up to offset 19, but the state .* up to 20"),
        ((5, 5), 5, 5, {0: 20}, "taken raw/1 up to offset 0"),
        ((4, 4), 5, 4, {0: 20, 1: 21}, "taken raw/1 up to offset 21"),
        ((5,), 5, 5, TAKEN, "the positions of the state partitions 1 are gone"),
    ],
)
def test_what_contradicts_itself_is_a_fault(
    batches: tuple[int, ...], planned: int | None, committed: int | None, taken: Mapping[int, int], told: str
) -> None:
    found = fault_of(notes(*batches), a_checkpoint(planned, committed), {"raw": taken}, PLAN)
    assert found is not None
    assert re.search(told, found.text)
    assert found.run == RUN


def test_another_grouping_is_a_fault() -> None:
    found = fault_of(notes(5, 5), a_checkpoint(5, 5), {"raw": TAKEN}, "another")
    assert found is not None
    assert "groups or joins otherwise than the run" in found.text


def test_positions_of_two_runs_are_a_fault() -> None:
    found = fault_of({0: a_note(5), 1: a_note(5, OTHER)}, a_checkpoint(5, 5), {"raw": TAKEN}, PLAN)
    assert found is not None
    assert found.text == f"the positions of the state are of runs that do not fit together, {RUN}, {OTHER}"


def test_the_checkpoint_counts_only_where_it_is_whole_and_the_only_one() -> None:
    whole, cut_off = fault_of({}, a_checkpoint(5, 5), {}, PLAN), fault_of({}, a_checkpoint(5, 4), {}, PLAN)
    two = fault_of({}, {**a_checkpoint(5, 5), **a_checkpoint(5, 5, OTHER)}, {}, PLAN)
    neither = fault_of({}, {}, {"raw": TAKEN}, PLAN)
    assert [None if each is None else (each.run, each.is_forgotten) for each in (whole, cut_off, two, neither)] == [
        (RUN, True),
        (RUN, False),
        (RUN, False),
        ("unknown", False),
    ]


@pytest.mark.parametrize("text", [None, "", "null", "{}", "[1]", '{"epoch":1,"run":"x","batch":0}', "{" * 9_999])
def test_a_note_that_is_not_ours_is_none(text: str | None) -> None:
    assert StateNote.of(text) is None


def test_a_note_is_read_as_it_was_written() -> None:
    assert StateNote.of(a_note(7).as_metadata()) == a_note(7)
    assert len(a_note(10**12).as_metadata()) < 4_096
