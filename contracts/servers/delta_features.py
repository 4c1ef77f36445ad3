"""`foreign_features`: what another engine has turned on in a Delta table, and nobody here writes or reads."""

from __future__ import annotations

from collections.abc import Iterable

_VERSIONS = {1, 2, 7}
"""Writer versions without features of their own: those between bring change data, generated columns, column mapping, identities;
7 names each.
"""

_HONOURED = {"appendOnly", "invariants", "timestampNtz"}
"""What version 2 has, which is how the lake's tables are made, and a type of column."""


def foreign_features(writer_version: int, writer_features: Iterable[str] | None) -> str | None:
    """The names of a table's features that are none of ours, by its protocol; None: there is none."""
    foreign = {*(writer_features or ())} - _HONOURED
    if writer_version in _VERSIONS and not foreign:
        return None
    return ", ".join(sorted(foreign)) or f"those of writer version {writer_version}"
