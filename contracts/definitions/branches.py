"""What a pipeline writes: one topic, or, as a branch, several by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def targets_of(writes: str | Mapping[str, str]) -> tuple[str, ...]:
    """All topics that it writes: the one, or those of a branch by their names."""
    return (writes,) if isinstance(writes, str) else tuple(writes.values())


def fault_of_branches(branches: Sequence[tuple[str, str]], sources: int = 1) -> str | None:
    """What is wrong with pairs of a branch's name and its topic, of a pipeline that reads so many topics; None if nothing is."""
    if sources > 1:
        return "a branch reads one topic, and this one joins two"
    names, topics = [name for name, _ in branches], [topic for _, topic in branches]
    if len(branches) < 2:
        return "a branch writes two topics or more: write the topic itself, if it is one"
    if wrong := [name for name in names if not _NAME.fullmatch(name)]:
        return f"{wrong[0]!r} is no name of a branch: use lower case, digits and _"
    if twice := sorted(
        {topic for topic in topics if topics.count(topic) > 1} | {name for name in names if names.count(name) > 1}
    ):
        return f"{twice[0]} stands twice: a branch has one topic for each name"
    return None
