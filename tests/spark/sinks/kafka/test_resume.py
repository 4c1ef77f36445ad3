"""Where `live` goes on, decided from what group, checkpoint and topic say."""

from __future__ import annotations

import pytest

from spark.runtime.errors import PositionsDisagree
from spark.runtime.settings import OnDataLoss, ResumeFrom
from spark.sinks.kafka.resume import Evidence, resume


def at(
    group: int | None,
    checkpoint: int | None,
    low: int = 0,
    high: int = 100,
    *,
    resume_from: ResumeFrom = "both",
    on_data_loss: OnDataLoss = "stop",
    is_forgotten: bool = False,
) -> int:
    return resume({3: Evidence(group, checkpoint, low, high, is_forgotten)}, "t", resume_from, on_data_loss)[3]


@pytest.mark.parametrize(
    ("group", "checkpoint", "position"),
    [(None, None, 5), (40, None, 40), (40, 40, 40), (40, 30, 40), (None, 5, 5), (100, None, 100)],
)
def test_the_group_leads(group: int | None, checkpoint: int | None, position: int) -> None:
    assert at(group, checkpoint, low=5) == position


@pytest.mark.parametrize("group", [None, 40])
def test_a_checkpoint_ahead_of_the_group_needs_a_choice(group: int | None) -> None:
    with pytest.raises(PositionsDisagree, match=r"t/3: the checkpoint has read up to offset 60.*=checkpoint"):
        at(group, 60)
    assert at(group, 60, resume_from="checkpoint") == 60


def test_what_lies_before_a_checkpoint_is_read_by_choice() -> None:
    with pytest.raises(
        PositionsDisagree, match=r"t/3: .* up to offset 60, .* taken in up to 40\. Set .*RESUME_FROM=group"
    ):
        at(40, 60)
    assert at(40, 60, resume_from="group") == 40


@pytest.mark.parametrize("resume_from", ["both", "group", "checkpoint"])
def test_no_setting_that_is_left_goes_back_behind_the_group(resume_from: ResumeFrom) -> None:
    assert at(40, 30, resume_from=resume_from) == 40


@pytest.mark.parametrize("resume_from", ["both", "group", "checkpoint"])
def test_no_setting_that_is_left_begins_anew_where_the_brokers_have_forgotten_the_offset(
    resume_from: ResumeFrom,
) -> None:
    cure = r"t/3: the consumer group has no offset, but .*Set it with kafka-consumer-groups: .* the first record, 7, writes again"
    with pytest.raises(PositionsDisagree, match=cure):
        at(None, None, low=7, is_forgotten=True, resume_from=resume_from)
    assert at(40, None, is_forgotten=True, resume_from=resume_from) == 40


def test_a_setting_that_is_left_does_not_go_back_behind_a_checkpoint_where_the_group_has_no_offset() -> None:
    with pytest.raises(
        PositionsDisagree, match=r"t/3: .* up to offset 60, the consumer group has no offset\. Set .*=checkpoint"
    ):
        at(None, 60, low=7, resume_from="group")


def test_a_checkpoint_beyond_the_topic_is_no_place_to_go_on() -> None:
    with pytest.raises(PositionsDisagree, match=r"t/3 ends at offset 7 .*, before the 60"):
        at(None, 60, high=7, resume_from="checkpoint")


def test_records_that_retention_took_unread_are_counted_and_need_a_choice() -> None:
    with pytest.raises(PositionsDisagree, match=r"30 records from offset 10 up to 40 are gone from t/3 unread"):
        at(10, 10, low=40)
    assert at(10, 10, low=40, on_data_loss="continue") == 40


@pytest.mark.parametrize("on_data_loss", ["stop", "continue"])
def test_no_setting_writes_a_partition_again_that_was_cut(on_data_loss: OnDataLoss) -> None:
    cure = r"t/3 ends at offset 7 .*, before the 50 .*kafka-consumer-groups: .* the first record, 2, writes again"
    with pytest.raises(PositionsDisagree, match=cure):
        at(50, 50, low=2, high=7, on_data_loss=on_data_loss)


def test_a_topic_that_was_made_anew_needs_a_choice_though_it_is_longer() -> None:
    found = {3: Evidence(50, None, 0, 100, made_anew=("old", "new"))}
    with pytest.raises(
        PositionsDisagree,
        match=r"t/3 was made anew: what was taken in is of .* id old, the one there has new.* First make the topics that are derived.*ON_DATA_LOSS=continue",
    ):
        resume(found, "t", "both", "stop")
    assert resume(found, "t", "both", "continue") == {3: 0}
