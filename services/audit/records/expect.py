"""`Expectation`: the alerts that records must have raised, by the rules."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Message

from contracts.errors import DecodeError, RegistryError
from contracts.events import AlertRaised
from contracts.records.codec import Codec
from contracts.records.coordinates import coordinate_of
from contracts.records.headers import header_of, headers_of
from contracts.records.wire import FRAME_BYTES
from contracts.servers.registry import Registry
from services.alerting.rules.evaluate import CompiledRule, compile_rule, evaluate
from services.alerting.rules.fields import fields_of
from services.alerting.rules.record import Record
from services.alerting.rules.rule import Rule
from services.alerting.rules.screen import Screen
from services.audit.values.place import code

if TYPE_CHECKING:
    from services.audit.records.records import Reading

_COMPARE: dict[str, Callable[[Any, float], Any]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True, slots=True)
class Expected:
    """An alert, and the place of the record that raises it; `due`: it must be there, not only may."""

    at: int
    alert: AlertRaised
    due: bool


class Expectation:
    """Asks `services.alerting`'s own rules, but only about records that cross a threshold: those are found by column."""

    def __init__(self, reading: Reading, registry: Registry) -> None:
        self._reading = reading
        assert reading.schema is not None
        fields = fields_of(reading.schema)
        rules = [(use, _compiled(use.rule)) for use in reading.rules]
        self._rules = [
            (use, rule)
            for use, rule in rules
            if rule is not None and rule.fields <= fields.keys() and fields[use.rule.field].numeric
        ]
        self.unasked = frozenset(use.rule.version for use, _ in rules) - {rule.version for _, rule in self._rules}
        """Versions of rules of long ago: about a field that the topic no longer has, or with a filter that is refused now."""
        self._registry = registry
        self._codec = Codec(registry.by_id, reader_schema=reading.schema)
        self._screens: dict[frozenset[str], Screen] = {}

    def of(
        self, batch: Sequence[Message], columns: Mapping[str, pa.Array], rows: npt.NDArray[np.int64]
    ) -> tuple[list[Expected], list[int]]:
        """The alerts of a batch, and the rows of the batch that can't be evaluated; `rows` are those of `columns`."""
        expected, failed = [], []
        crossing = np.zeros(len(rows), np.bool_)
        for use, _ in self._rules:
            crossing |= _crosses(use.rule, columns[use.rule.field])
        for row in rows[crossing]:
            message = batch[row]
            offset = message.offset() or 0
            try:
                record = self._record(message)
                for use, rule in self._rules:
                    if offset >= use.since:
                        due = use.was_due(offset)
                        at = code(self._reading.partition, offset)
                        expected += [Expected(at, alert, due) for alert in evaluate([rule], record)]
            except RegistryError:
                raise
            except DecodeError:
                if self._is_let_through(message, offset):
                    failed.append(int(row))
            # Whatever else it is that fails, such as a format: alerting makes a dead letter of the record.
            except Exception:  # noqa: BLE001
                failed.append(int(row))
        return expected, failed

    def _is_let_through(self, message: Message, offset: int) -> bool:
        """Whether alerting decodes the record at all: else it never finds out that it can't be decoded whole."""
        body = message.value()
        if not isinstance(body, bytes):
            return True
        rules = [rule for use, rule in self._rules if use.was_due(offset)]
        versions = frozenset(rule.version for rule in rules)
        screen = self._screens.get(versions) or self._screens.setdefault(versions, Screen(rules, self._registry.by_id))
        screen.learn(body[:FRAME_BYTES])
        return screen.lets_through(body)

    def _record(self, message: Message) -> Record:
        body = message.value()
        values = self._codec.decode(body if isinstance(body, bytes) else b"")
        coordinate = coordinate_of(
            self._reading.source,
            self._reading.topic,
            self._reading.partition,
            message.offset() or 0,
            header_of(headers_of(message), "ce_id"),
            parts=self._reading.parts,
        )
        return Record(self._reading.topic, coordinate, values[self._reading.occurred_at], values)


def _compiled(rule: Rule) -> CompiledRule | None:
    try:
        return compile_rule(rule)
    except ValueError:
        return None


def _crosses(rule: Rule, column: pa.Array) -> npt.NDArray[np.bool_]:
    """Rows that may match: all that do, and of decimals every one that isn't null."""
    present: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_decimal(column.type):
        return present
    numbers = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    crosses: npt.NDArray[np.bool_] = present & _COMPARE[rule.operator](numbers, rule.threshold)
    return crosses
