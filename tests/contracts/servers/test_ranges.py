"""A range is read up to its end, whatever its last offsets hold, and no error is taken for a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from contracts.errors import ConsumeError
from contracts.servers.ranges import OffsetRange, records_in

END = KafkaError._PARTITION_EOF


@dataclass(frozen=True)
class Polled:
    """What a client gives: a record, or a `code` that says why it is none."""

    place: int
    at: int
    code: int | None = None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.place

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)


class Client:
    """Gives what is planned, then nothing."""

    def __init__(self, planned: Sequence[Polled]) -> None:
        self._planned = list(planned)
        self.assigned: list[tuple[int, int]] = []

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.assigned = [(each.partition, each.offset) for each in places]

    def poll(self, timeout: float) -> Polled | None:
        return self._planned.pop(0) if self._planned else None

    def consume(self, most: int, timeout: float) -> list[Polled]:
        found, self._planned = self._planned[:most], self._planned[most:]
        return found


def read(planned: Sequence[Polled], *spans: tuple[int, int, int], **options: Any) -> list[list[tuple[int, int]]]:
    """Partition and offset of each record, by batch; a span is a partition, its start and its end."""
    asked = [OffsetRange("t", *span) for span in spans]
    batches = records_in(cast(Consumer, Client(planned)), asked, **{"silent_seconds": 0.0, **options})
    return [[(cast(Polled, each).place, cast(Polled, each).at) for each in batch] for batch in batches]


def test_a_range_ends_with_its_last_record_and_what_comes_after_it_is_none_of_it() -> None:
    records = [Polled(0, 3), Polled(0, 4), Polled(0, 5)]
    assert read(records, (0, 3, 5)) == [[(0, 3), (0, 4)]]


@pytest.mark.parametrize("last", [Polled(0, 9, END), Polled(0, 12, END), Polled(0, 9), Polled(0, 12)])
def test_a_range_whose_last_offsets_hold_no_record_ends_with_what_lies_behind_it(last: Polled) -> None:
    assert read([Polled(0, 3), Polled(0, 7), last], (0, 3, 9)) == [[(0, 3), (0, 7)]]


def test_the_end_of_the_partition_before_that_of_the_range_is_none() -> None:
    with pytest.raises(ConsumeError, match="nothing came of t/0 up to 9 in 0 s"):
        read([Polled(0, 3), Polled(0, 4, END)], (0, 3, 9))


def test_several_ranges_are_read_to_the_end_of_each() -> None:
    polled = [Polled(0, 1), Polled(1, 8), Polled(0, 2), Polled(0, 3), Polled(1, 9, END)]
    assert read(polled, (0, 1, 2), (1, 8, 9)) == [[(0, 1), (1, 8)]]
    with pytest.raises(ConsumeError, match=r"nothing came of t/1 up to 9 in"):
        read([Polled(0, at) for at in range(1, 50)], (0, 1, 2), (1, 8, 9), most=10)


def test_nothing_is_asked_of_empty_ranges() -> None:
    client = Client([])
    asked = [OffsetRange("t", 0, 5, 5), OffsetRange("t", 1, 7, 6)]
    assert list(records_in(cast(Consumer, client), asked, silent_seconds=0.0)) == []
    assert client.assigned == []


def test_an_error_that_passes_is_no_record_and_one_that_does_not_is_raised() -> None:
    passing = [Polled(0, 5, code) for code in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._TRANSPORT)]
    assert read([Polled(0, 3), *passing, Polled(0, 4)], (0, 3, 5)) == [[(0, 3), (0, 4)]]
    with pytest.raises(KafkaException) as raised:
        read([Polled(0, 3), Polled(0, 3, KafkaError._AUTO_OFFSET_RESET)], (0, 3, 5))
    assert raised.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET


def test_batches_are_as_large_as_asked_at_most() -> None:
    records = [Polled(0, at) for at in range(5)]
    assert read(records, (0, 0, 5), most=2) == [[(0, 0), (0, 1)], [(0, 2), (0, 3)], [(0, 4)]]


def test_who_reads_can_be_stopped() -> None:
    def stop(seconds: float) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        read([Polled(0, 3)], (0, 3, 5), pause=stop)


def test_the_time_that_a_batch_is_handled_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("contracts.servers.ranges.time.monotonic", lambda: now[0])
    client = Client([Polled(0, 3)])
    batches = records_in(cast(Consumer, client), [OffsetRange("t", 0, 3, 5)], silent_seconds=30)
    assert len(next(batches)) == 1
    now[0] = 100.0
    client.consume(0, 0)
    client._planned = []

    def answer(timeout: float) -> Polled | None:
        now[0] += 10
        return Polled(0, 4) if now[0] > 125 else None

    monkeypatch.setattr(client, "poll", answer)
    assert len(next(batches)) == 1
