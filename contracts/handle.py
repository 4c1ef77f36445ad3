"""`Topic[E]`: a topic's name together with the type of its events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel

E = TypeVar("E", bound=BaseModel)
"""An event model, generated from a topic's schema."""


@dataclass(frozen=True, slots=True)
class Topic(Generic[E]):
    """What services name in place of a string; `contracts.topics` holds one for each contract."""

    name: str
    model: type[E]
