"""`Condition`: an expression in CEL about the fields of an event, that holds or does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.alerting.rules.evaluate import BOUND, cel_value, compile_filter


class Condition:
    """One that has no answer does not hold, such as `a > 2` of a null; `a != 2` and `!(a == 2)` hold of a null. `fields` are the names in it."""

    def __init__(self, text: str) -> None:
        """Raises ValueError if it is not well-formed."""
        self._program = compile_filter(text)
        bound = BOUND.findall(text)
        self.fields: tuple[str, ...] = tuple(name for name in self._program.variables() if name not in bound)

    def holds(self, event: Mapping[str, Any]) -> bool:
        """Whether it holds for an event with these fields."""
        try:
            answer = self._program.execute({name: cel_value(event[name]) for name in self.fields})
        # The CEL library raises what its operators feel like.
        except Exception:  # noqa: BLE001
            return False
        return answer is True
