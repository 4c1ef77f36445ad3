"""`Retained`: what becomes of the records that a topic holds, under a contract or a pipeline that changes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, Self, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict

What: TypeAlias = Literal[
    "same",
    "changed",
    "field",
    "dead letter",
    "still a dead letter",
    "appears",
    "vanishes",
    "not handled yet",
    "left out",
    "not compared",
]
WHATS: tuple[What, ...] = get_args(What)
"""A `dead letter` is none now, a `field` tells more of what has `changed`. What is `left out` by a filter was so before. What is
`not handled yet` by the pipeline that runs would come out, and so it may be with that one. What is there and can't be read with the new schema
is `not compared`.
"""


HIDDEN = "(personal data)"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Outcome(_Part):
    """So many records of which the same is to be said, and one of them.

    `name` is that of a field, or a dead letter's reason. `before` and `after` are JSON values of a field; of a dead letter `after` says what
    is wrong.
    """

    what: What
    name: str = ""
    count: int
    coordinate: str = ""
    before: Any = None
    after: Any = None


class Retained(_Part):
    """Of the events of `topic`: decoded with its new schema, or made anew by `pipeline` of the records that it reads.

    `older` offsets were not looked at. With a `problem` nothing was.
    """

    topic: str
    pipeline: str | None = None
    older: int = 0
    outcomes: tuple[Outcome, ...] = ()
    problem: str | None = None

    @property
    def records(self) -> int:
        """How many were looked at."""
        return sum(each.count for each in self.outcomes if each.what != "field")

    def without_values(self, fields: Collection[str]) -> Self:
        """The same, without the values of these fields. If there are any, errors go, too: they may tell a value of whatever field."""
        hidden = {"before": HIDDEN, "after": HIDDEN}
        errors = ("dead letter", "still a dead letter") if fields else ()
        kept = (
            each.model_copy(update=hidden)
            if each.what in errors or (each.what == "field" and each.name in fields)
            else each
            for each in self.outcomes
        )
        return self.model_copy(update={"outcomes": tuple(kept)})
