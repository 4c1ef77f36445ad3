"""Which run of an aggregate goes on, by what positions and checkpoint say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from contracts.servers.ranges import OffsetRange
from spark.sinks.stateful.run import Checkpoint, Fault, Log
from spark.sinks.stateful.run import fault_of as fault_of_all
from spark.sinks.stateful.state_note import Begins, Reads, StateNote

RUN, OTHER, PLAN = "0123abcd", "89abcdef", "plan"
IDS = {"raw": "an id"}
TAKEN = {0: 20, 1: 20}
"""Of the topic raw."""


def a_note(batch: int, run: str = RUN, partitions: int = 2, begins: Begins = "group") -> StateNote:
    return StateNote(epoch=1, run=run, batch=batch, partitions=partitions, begins=begins, plan=PLAN, topics=IDS)


def notes(*batches: int) -> dict[int, StateNote]:
    return dict(enumerate(map(a_note, batches)))


def a_checkpoint(planned: int | None, committed: int | None, run: str = RUN) -> Mapping[str, Checkpoint]:
    ranges = tuple(OffsetRange("raw", partition, 10, 20) for partition in (0, 1)) if planned is not None else ()
    return {run: Checkpoint(run, planned, committed, ranges, a_note(-1, run))}


def logs(taken: Mapping[int, int], first: int = 0, end: int = 100) -> Mapping[str, Mapping[int, Log]]:
    """Of the topic raw; where nothing is told, nothing is taken."""
    return {"raw": {partition: Log(taken.get(partition, 0), first, end) for partition in (0, 1)}}


def fault_of(
    notes: Mapping[int, StateNote],
    checkpoints: Mapping[str, Checkpoint],
    logs: Mapping[str, Mapping[int, Log]],
    plan: str = PLAN,
    topics: Mapping[str, str] = IDS,
    *,
    written: int = 7,
) -> Fault | None:
    return fault_of_all(notes, checkpoints, logs, plan, topics, written)


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
    assert fault_of(notes(*batches), a_checkpoint(planned, committed), logs(taken)) is None


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
        ((5, 5), 4, 5, {0: 10, 1: 10}, "has committed batch 5, and what that batch read is gone"),
        ((5, 5), None, 5, TAKEN, "has committed batch 5, and what that batch read is gone"),
    ],
)
def test_what_contradicts_itself_is_a_fault(
    batches: tuple[int, ...], planned: int | None, committed: int | None, taken: Mapping[int, int], told: str
) -> None:
    found = fault_of(notes(*batches), a_checkpoint(planned, committed), logs(taken))
    assert found is not None
    assert re.search(told, found.text)
    assert found.run == RUN


def test_another_grouping_is_a_fault() -> None:
    found = fault_of(notes(5, 5), a_checkpoint(5, 5), logs(TAKEN), "another", IDS)
    assert found is not None
    assert "groups, joins or tells events apart otherwise than the run" in found.text


def test_a_topic_that_was_made_anew_is_a_fault_and_no_state_of_the_other_one_is_offered() -> None:
    anew, unknown = {"raw": "another"}, dict[str, str]()
    of_notes = fault_of(notes(5, 5), a_checkpoint(5, 5), logs({}), PLAN, anew)
    assert of_notes is not None
    assert of_notes.text.startswith("raw was made anew: its id was an id, and is another; ")
    forgotten = fault_of({}, a_checkpoint(5, 5), logs({}), PLAN, anew)
    assert forgotten is not None
    assert (of_notes.is_forgotten, forgotten.is_forgotten) == (False, False)
    assert fault_of(notes(5, 5), a_checkpoint(5, 5), logs(TAKEN), PLAN, unknown) is None


def test_a_run_with_fewer_state_partitions_goes_on_beside_what_the_one_before_has_left() -> None:
    fewer = {0: a_note(5), 1: a_note(5), 2: a_note(9, OTHER, 4), 3: a_note(9, OTHER, 4)}
    assert fault_of(fewer, a_checkpoint(5, 5), logs(TAKEN)) is None


def test_positions_of_two_runs_are_a_fault() -> None:
    found = fault_of({0: a_note(5), 1: a_note(5, OTHER)}, a_checkpoint(5, 5), logs(TAKEN))
    assert found is not None
    assert found.text == f"the positions of the state are of runs that do not fit together, {RUN}, {OTHER}"


def test_a_choice_that_was_cut_off_while_it_began_another_run_still_fits() -> None:
    found = fault_of({0: a_note(-1, OTHER), 1: a_note(5)}, a_checkpoint(5, 5), logs(TAKEN))
    assert found is not None
    assert found.run == RUN


def test_the_checkpoint_counts_only_where_it_is_whole_and_the_only_one() -> None:
    whole, cut_off = (
        fault_of({}, a_checkpoint(5, 5), logs(TAKEN)),
        fault_of({}, a_checkpoint(5, 4), logs(TAKEN)),
    )
    two = fault_of({}, {**a_checkpoint(5, 5), **a_checkpoint(5, 5, OTHER)}, logs(TAKEN))
    other_plan = fault_of({}, a_checkpoint(5, 5), logs(TAKEN), "another", IDS)
    without_a_note = fault_of({}, {RUN: replace(a_checkpoint(5, 5)[RUN], note=None)}, logs(TAKEN))
    expired = fault_of({}, a_checkpoint(5, 5), logs({}, first=21))
    neither = fault_of({}, {}, logs(TAKEN))
    found = (whole, cut_off, two, other_plan, without_a_note, expired, neither)
    assert [None if each is None else (each.run, each.is_forgotten) for each in found] == [
        (RUN, True),
        *[(RUN, False)] * 5,
        ("unknown_47", False),
    ]


def test_a_run_of_which_nothing_is_left_is_told_by_what_was_taken_and_written() -> None:
    assert fault_of({}, {}, logs({}), written=0) is None
    both, taken, written = (
        fault_of({}, {}, logs(TAKEN), written=7),
        fault_of({}, {}, logs(TAKEN), written=0),
        fault_of({}, {}, logs({}), written=7),
    )
    tail = ", but its state has neither positions nor a checkpoint"
    assert [each and (each.run, each.text.removesuffix(tail)) for each in (both, taken, written)] == [
        ("unknown_47", "the pipeline's group has offsets and its topic has had records"),
        ("unknown_40", "the pipeline's group has offsets"),
        ("unknown_7", "its topic has had records"),
    ]


def test_a_checkpoint_older_than_the_group_can_not_be_kept_but_of_a_run_that_computes_everything_again() -> None:
    older, again = logs({0: 90, 1: 20}), a_note(-1, begins="again")
    rebuilding = {RUN: replace(a_checkpoint(5, 5)[RUN], note=again)}
    without_positions = [fault_of({}, each, older) for each in (a_checkpoint(5, 5), rebuilding)]
    of_some = [fault_of(notes(5), each, older) for each in (a_checkpoint(5, 5), rebuilding)]
    behind = fault_of(notes(5, 5), a_checkpoint(5, 5), older)
    assert [each and each.is_forgotten for each in (*without_positions, *of_some, behind)] == [
        *(False, True),
        *(False, True),
        False,
    ]


def test_a_run_that_computes_everything_again_may_be_behind_the_group() -> None:
    behind = {partition: a_note(5, begins="again") for partition in (0, 1)}
    assert fault_of(behind, a_checkpoint(5, 5), logs({0: 90, 1: 20})) is None
    assert fault_of(behind, a_checkpoint(5, 5), logs({0: 90, 1: 19})) is not None
    first = {partition: a_note(5, begins="first") for partition in (0, 1)}
    assert fault_of(first, a_checkpoint(5, 5), logs({0: 90, 1: 20})) is not None


def reads(start: int, end: int) -> Reads:
    return Reads.of(OffsetRange("raw", partition, start, end) for partition in (0, 1))


@pytest.mark.parametrize(
    ("batch", "read", "fits"),
    [
        (5, (10, 20), True),  # the batch that is planned
        (5, (10, 19), False),
        (5, (9, 20), False),
        (4, (0, 10), True),  # the one before it
        (4, (0, 11), False),
    ],
)
def test_a_plan_that_is_not_the_one_by_which_the_state_was_written_is_a_fault(
    batch: int, read: tuple[int, int], fits: bool
) -> None:
    one, other = a_note(batch), a_note(4).model_copy(update={"reads": reads(0, 10)})
    written = {0: one.model_copy(update={"reads": reads(*read)}), 1: other}
    found = fault_of(written, a_checkpoint(5, 4), logs({0: 10, 1: 10}))
    assert (found is None) == fits
    assert found is None or "reads other records by its checkpoint than" in found.text


def test_a_partition_that_was_added_changes_not_what_was_read() -> None:
    two = [OffsetRange("raw", 0, 5, 9), OffsetRange("raw", 1, 0, 0)]
    assert Reads.of(two) == Reads.of(reversed(two)) == Reads.of(two[:1])
    assert Reads.of(two) != Reads.of([OffsetRange("other", 0, 5, 9)])


@pytest.mark.parametrize(
    ("planned", "first", "end", "told"),
    [
        (5, 21, 100, "records of raw/0 from offset 20 up to 21 are gone"),
        (6, 11, 100, "records of raw/0 from offset 10 up to 11 are gone"),
        (5, 0, 19, "raw/0 ends at offset 19, and the state .* has what it read up to 20"),
    ],
)
def test_records_that_the_state_would_need_and_that_are_gone_are_a_fault_that_no_checkpoint_heals(
    planned: int, first: int, end: int, told: str
) -> None:
    found = fault_of(
        notes(5, 5), a_checkpoint(planned, 5), logs({0: max(first, 20), 1: max(first, 20)}, first, end), PLAN, IDS
    )
    assert found is not None
    assert re.search(told, found.text)
    assert not found.is_forgotten


def test_a_topic_that_was_made_anew_with_fewer_partitions_is_a_fault() -> None:
    found = fault_of(notes(5, 5), a_checkpoint(5, 5), {"raw": {0: Log(20, 0, 100)}})
    assert found is not None
    assert "raw/1 ends at offset 0" in found.text


def test_of_a_partition_that_was_added_the_first_record_is_needed() -> None:
    of_raw = {**logs(TAKEN)["raw"], 2: Log(7, 7, 9)}
    found = fault_of(notes(5, 5), a_checkpoint(5, 5), {"raw": of_raw})
    assert found is not None
    assert "records of raw/2 from offset 0 up to 7 are gone" in found.text


@pytest.mark.parametrize("text", [None, "", "null", "{}", "[1]", '{"epoch":1,"run":"x","batch":0}', "{" * 9_999])
def test_a_note_that_is_not_ours_is_none(text: str | None) -> None:
    assert StateNote.of(text) is None


def test_a_note_is_read_as_it_was_written() -> None:
    assert StateNote.of(a_note(7).as_metadata()) == a_note(7)
    assert len(a_note(10**12).as_metadata()) < 4_096
