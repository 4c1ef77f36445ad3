"""What a pipeline remembers of the events of one key: `Memory`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args

Kind = Literal["boolean", "int", "long", "double", "string"]
"""The types that a field of a memory can have, as Spark names them."""

Event = Mapping[str, Any]
Remembered = Mapping[str, Any]


_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TAKEN = ("cls", "of", "waiting", "last_event_at")
"""What Spark's rows, or the columns of `headrace state`, have names for."""


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """Fields that each event gets by what the events before it were: of those with the same value in the field `of`, in the order of their times.

    `after` is called with an event and with the fields as they were after the one before it, None if there was none. It returns them as they are
    after this event, which gets them, too. Of an event it is given `of`, the fields that it `reads`, and the time (a `datetime` in UTC); all other values are
    as Spark hands them to Python. It must be a function of these alone, without a clock, chance or anything that it keeps: a batch that runs again
    must come to the same.

    `fields` are the names and types of what is remembered. An event that is later than the one before it by more than `forgets_after` has none before it.
    """

    of: str
    reads: tuple[str, ...]
    fields: Mapping[str, Kind]
    after: Callable[[Event, Remembered | None], Remembered]
    forgets_after: timedelta

    def __post_init__(self) -> None:
        """Raises TypeError, which says what to change."""
        if isinstance(self.reads, str):
            raise TypeError(f'reads is a text: name fields in a tuple, as in reads=("{self.reads}",)')
        if odd := [name for name in self.fields if not _NAME.fullmatch(name) or name in _TAKEN]:
            raise TypeError(
                f"a memory's field can't be called {', '.join(odd)}: take lower case letters, digits and _, and none of {', '.join(_TAKEN)}"
            )
        kinds = get_args(Kind)
        if wrong := [f"{name}: {kind}" for name, kind in self.fields.items() if kind not in kinds]:
            raise TypeError(f"a memory can have fields of type {', '.join(kinds)}, and not {', '.join(wrong)}")
        if not self.fields:
            raise TypeError("a memory without fields remembers nothing: name what each event gets by it")
        if self.forgets_after <= timedelta(0):
            raise TypeError(f"forgets_after is {self.forgets_after}, and must be a time that passes")
