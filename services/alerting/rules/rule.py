"""`Rule`: one threshold of `rules.yaml`."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from contracts.events import Severity

Operator = Literal[">", ">=", "<", "<=", "==", "!="]

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=100)]

_DURATION = re.compile(r"([0-9]+)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def _seconds(value: Any) -> Any:
    if isinstance(value, str) and (found := _DURATION.fullmatch(value)):
        return int(found[1]) * _SECONDS[found[2]]
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("a whole number of seconds, or such as 90s, 15m, 6h, 1d")


def _names(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


class Rule(BaseModel):
    """A threshold on one numeric field of one topic.

    `when` is a filter in CEL (the Common Expression Language) over the record's fields, asked only after the threshold
    matched. `cooldown` holds back notifications of the same rule and group for that many seconds of event time; the
    alert itself is always raised. `message` is text with `{field}`s of the record, each with an optional format:
    `{temperature_celsius:.1f}`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    description: str = Field(min_length=1)
    topic: str
    field: Name
    operator: Operator
    threshold: float = Field(strict=True, allow_inf_nan=False)
    when: str | None = Field(default=None, min_length=1)
    group_by: Annotated[tuple[Name, ...], BeforeValidator(_names)] = ()
    severity: Severity
    # The contract's field is an Avro int.
    cooldown: Annotated[int, BeforeValidator(_seconds)] = Field(default=0, ge=0, le=2**31 - 1)
    message: str = Field(min_length=1)

    @property
    def version(self) -> str:
        """First 12 hexadecimal digits of the SHA-256 of what the rule does; its description may change freely."""
        content = json.dumps(self.model_dump(mode="json", exclude={"description"}), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]
