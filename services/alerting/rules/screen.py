"""`Screen`: says quickly of most records that no rule can match.

A body is walked up to the last field that a threshold needs, and nothing is made of the fields between. Of those that cross
a threshold the fields which filters need are read too, and the filters asked. What can't be read with certainty is let
through: the full decoding, with all its checks, has the last word. So a record that no rule matches is never decoded whole,
and what is wrong with it behind those fields is not found here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from contracts.records.wire import FRAME_BYTES
from services.alerting.rules.evaluate import CompiledRule, FilterFailed, may_match
from services.alerting.rules.glance import Glance
from services.alerting.rules.thresholds import Thresholds


class Screen:
    """The rules of one topic, made ready for each schema that the topic's records are written with."""

    def __init__(self, rules: Iterable[CompiledRule], schema_by_id: Callable[[int], str]) -> None:
        """`schema_by_id` is asked by `learn` only."""
        self._rules = tuple(rules)
        self._schema_by_id = schema_by_id
        self._thresholds: dict[bytes, Thresholds | None] = {}
        self._glances: dict[bytes, Glance | None] = {}

    def learn(self, frame: bytes) -> None:
        """Make ready for the schema whose id is in a body's first five bytes; `schema_by_id` must know it."""
        if frame not in self._thresholds:
            fields = json.loads(self._schema_by_id(int.from_bytes(frame[1:], "big")))["fields"]
            self._glances[frame] = Glance.of(fields, self._rules)
            self._thresholds[frame] = Thresholds.of(fields, self._rules)

    def lets_through(self, body: bytes | None) -> bool:
        """Whether the record has to be decoded and evaluated; False only if no rule can match."""
        if body is None:
            return True
        frame = body[:FRAME_BYTES]
        thresholds = self._thresholds.get(frame)
        if thresholds is None:
            return True
        try:
            if not thresholds.may_be_crossed(body):
                return False
            glance = self._glances[frame]
            values = None if glance is None else glance(body)
            return values is None or any(may_match(rule, values) for rule in self._rules)
        # A text is not UTF-8, an integer too large for a float, or a filter can't be asked.
        except (ValueError, OverflowError, FilterFailed):
            return True
