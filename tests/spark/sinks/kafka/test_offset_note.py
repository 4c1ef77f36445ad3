"""What stands beside an offset of the group, which anybody may write."""

from __future__ import annotations

import pytest

from spark.sinks.kafka.offset_note import Mark, OffsetNote


@pytest.mark.parametrize(
    "note",
    [OffsetNote(), OffsetNote(3), OffsetNote(3, Mark({"t": (1, 2), "t.dlq": (0,)}), "an-id"), OffsetNote(0, Mark({}))],
)
def test_a_note_is_read_as_it_was_written(note: OffsetNote) -> None:
    assert OffsetNote.of(note.as_metadata()) == note


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        "",
        "no JSON",
        "7",
        "null",
        "[" * 4000,
        '{"epoch": Infinity, "ends": {"t": [1e400]}}',
        '{"epoch": "²", "ends": {"t": ["²"]}, "topic": 7}',
        '{"epoch": -1, "ends": {"t": [-1]}}',
        '{"epoch": 99999999999999999999, "ends": [[1]]}',
        f'{{"epoch": {"9" * 4500}}}',
    ],
)
def test_what_is_not_ours_says_nothing(metadata: str | None) -> None:
    assert OffsetNote.of(metadata) == OffsetNote()


def test_the_oldest_mark_reads_a_partition_that_some_lack_from_its_first_record() -> None:
    marks = [Mark({"t": (5, 9), "t.dlq": (3,)}), Mark({"t": (7, 8, 4), "t.dlq": (2,)})]
    oldest = Mark.oldest(marks, ["t", "t.dlq"])
    assert oldest == Mark({"t": (5, 8, 0), "t.dlq": (2,)})
    assert (oldest.end("t", 1), oldest.end("t", 3), oldest.end("another", 0)) == (8, 0, 0)


def test_the_oldest_mark_reads_a_topic_that_came_in_whole_and_one_that_went_from_where_marks_name_it() -> None:
    oldest = Mark.oldest([Mark({"t": (5,), "went": (7, 2)}), Mark({"t": (6,), "came": (9,)})], ["t", "came"])
    assert oldest == Mark({"t": (5,), "went": (7, 2), "came": (0,)})
