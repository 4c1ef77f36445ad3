"""The memory of a key as Spark keeps it, and what is made of its events: `MemoryProcessor`. Runs in Spark's Python workers.

Events wait until the watermark has passed them: an earlier one may still come, and none that comes later is counted in, for it is late. So each key's events are counted
in the order of their times, those of one time by partition and offset, however batches were cut; and a batch that runs again comes to the same.

Each call to Spark's state is a message to the JVM and back. So a key's memory, with what waits, is one value, read once and written once in a batch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from numbers import Integral, Real
from typing import Any, NamedTuple

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from contracts.records.limits import COMPUTED_TEXT_BYTES
from spark.memory import Event, Memory, Remembered

VARIABLE = "memory"
"""The name of the value in Spark's state."""
READS = "reads_"
"""What the columns with the fields that a memory reads have before their names."""
_MICROS = 1_000
"""In a millisecond, in which Spark counts watermarks."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BITS = {"int": 31, "long": 63}
_ERROR_CHARACTERS = 300


class Waiting(NamedTuple):
    """An event that is not counted yet: its time in microseconds since 1970, its place, the record's value, and the fields that the memory reads."""

    at: int
    partition: int
    offset: int
    value: bytes
    reads: Sequence[Any]


class Stored(NamedTuple):
    """What is kept of a key: the memory, None before the first event; the time of the last one; when Spark is to call next, both in microseconds since 1970; and what waits."""

    fields: Remembered | None
    last: int | None
    call_at: int | None
    waiting: Sequence[Waiting]


class MemoryProcessor(StatefulProcessor):
    """Rows in have the columns `of`, `at`, `partition`, `offset`, `value` and those that are read, with `READS` before their names; rows out are `made`."""

    def __init__(self, memory: Memory, occurred_at: str, reads: Mapping[str, str]) -> None:
        """`occurred_at` is the field with an event's time, `reads` are the types of what is read, by name, as Spark names them."""
        self._memory, self._occurred_at, self._reads = memory, occurred_at, tuple(reads)
        fields = ", ".join(f"{name}: {kind}" for name, kind in memory.fields.items())
        read = "".join(f", {READS}{name}: {kind}" for name, kind in reads.items())
        waiting = f"array<struct<at: bigint, partition: int, offset: bigint, value: binary{read}>>"
        self._kept = f"fields struct<{fields}>, last bigint, call_at bigint, waiting {waiting}"
        self.made = f"partition int, offset bigint, value binary, fault string, fields struct<{fields}>"
        """The schema of the rows out: the place and the value of an event's record, why its memory can't be told, null if it can, and the memory."""
        self.forgets_micros = memory.forgets_after // timedelta(microseconds=1)
        """How much later an event may be than the one before it, in microseconds."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark, once for each task."""
        self._handle = handle
        self._state = handle.getValueState(VARIABLE, self._kept)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:
        """Called by Spark with the new events of a key."""
        (of,) = key
        coming = [
            Waiting(row.at, row.partition, row.offset, bytes(row.value), [row[READS + name] for name in self._reads])
            for row in rows
        ]
        if of is None:
            # Nothing holds them together.
            for each in sorted(coming, key=_place):
                yield self._row(each, None)
            return
        yield from self._advance(of, coming, timerValues.getCurrentWatermarkInMs() * _MICROS)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """Called by Spark when the watermark has come to the time that was asked for."""
        yield from self._advance(key[0], [], timerValues.getCurrentWatermarkInMs() * _MICROS)

    def close(self) -> None:
        """Called by Spark at the end of a task."""

    def _advance(self, of: Any, coming: Sequence[Waiting], watermark: int) -> Iterator[Row]:
        stored = self._read()
        fields, last = stored.fields, stored.last
        waiting = sorted([*stored.waiting, *coming], key=_place)
        due = bisect_right(waiting, watermark, key=lambda each: each.at)
        for each in waiting[:due]:
            if last is not None and each.at - last > self.forgets_micros:
                fields = None
            last = each.at
            try:
                fields = checked(
                    self._memory, self._memory.after(self._event(of, each), None if fields is None else {**fields})
                )
            except (Exception, SystemExit) as error:  # noqa: BLE001
                # An odd event must not stop all others, and is not counted.
                yield self._row(each, None, f"after: {type(error).__name__}: {_told(error)}"[:_ERROR_CHARACTERS])
                continue
            yield self._row(each, fields)
        self._write(Stored(fields, last, stored.call_at, waiting[due:]), watermark)

    def _event(self, of: Any, each: Waiting) -> Event:
        read = dict(zip(self._reads, each.reads, strict=True))
        return {**read, self._memory.of: of, self._occurred_at: _EPOCH + timedelta(microseconds=each.at)}

    def _row(self, each: Waiting, fields: Remembered | None, fault: str | None = None) -> Row:
        of = None if fields is None else Row(**fields)
        return Row(partition=each.partition, offset=each.offset, value=each.value, fault=fault, fields=of)

    def _read(self) -> Stored:
        found = self._state.get()
        if found is None:
            return Stored(None, None, None, ())
        fields, last, call_at, waiting = found
        kept = [Waiting(at, partition, offset, bytes(value), reads) for at, partition, offset, value, *reads in waiting]
        return Stored(
            None if fields is None else dict(zip(self._memory.fields, fields, strict=True)), last, call_at, kept
        )

    def _write(self, stored: Stored, watermark: int) -> None:
        """Keep it, unless it is to be forgotten, and have Spark call when there is something to do: once at most, so that a key has one timer. A call that
        comes too early does nothing.
        """
        fields, last, call_at, waiting = stored
        if not waiting and (last is None or watermark >= last + self.forgets_micros):
            self._state.clear()
            return
        wanted = waiting[0].at if waiting else int(last or 0) + self.forgets_micros
        if call_at is None or call_at <= watermark or wanted < call_at:
            if call_at is not None and call_at > watermark:
                self._handle.deleteTimer(_millis(call_at))
            call_at = wanted
            self._handle.registerTimer(_millis(call_at))
        of = None if fields is None else tuple(fields.values())
        kept = [(each.at, each.partition, each.offset, each.value, *each.reads) for each in waiting]
        self._state.update((of, last, call_at, kept))


def checked(memory: Memory, made: Any) -> Remembered:
    """What `after` returned, each field as its type has it. Raises TypeError or ValueError if it is something else."""
    if not isinstance(made, Mapping):
        raise TypeError(f"it returned {made!r:.100}, and not a mapping of {', '.join(memory.fields)}")
    if made.keys() != memory.fields.keys():
        raise ValueError(f"it returned {', '.join(map(str, made)) or 'nothing'}, and not {', '.join(memory.fields)}")
    return {name: _as_kind(name, kind, made[name]) for name, kind in memory.fields.items()}


def _as_kind(name: str, kind: str, value: Any) -> Any:
    match kind, value:
        case _, None:
            return None
        case "boolean", bool():
            return value
        case "int" | "long", Integral() if not isinstance(value, bool) and _fits(int(value), _BITS[kind]):
            return int(value)
        case "double", Real() if not isinstance(value, bool):
            return float(value)
        case "string", str() if len(value.encode()) <= COMPUTED_TEXT_BYTES:
            # Of a text of another class, such as an enum's, the JVM knows nothing.
            return str.__str__(value)
        case _:
            raise ValueError(f"it returned {name}={value!r:.100}, which is no {kind} that fits")


def _fits(number: int, bits: int) -> bool:
    return -(1 << bits) <= number < 1 << bits


def _told(error: BaseException) -> str:
    """As text that Spark can take."""
    try:
        return str(error).encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001
        return "it can't be told"


def _millis(micros: int) -> int:
    """Rounded up."""
    return -(-micros // _MICROS)


def _place(each: Waiting) -> tuple[int, int, int]:
    return each.at, each.partition, each.offset


def sequence(
    memory: Memory, occurred_at: str, events: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], Remembered]]:
    """Events of one key, in the order of their times, with the memory after each: what a pipeline's function gets, without Spark. Raises what `after` raises.

    For tests of a memory.
    """
    fields: Remembered | None = None
    last: datetime | None = None
    for each in events:
        if last is not None and each[occurred_at] - last > memory.forgets_after:
            fields = None
        last = each[occurred_at]
        given = {name: each[name] for name in (memory.of, *memory.reads, occurred_at)}
        fields = checked(memory, memory.after(given, fields))
        yield each, fields
