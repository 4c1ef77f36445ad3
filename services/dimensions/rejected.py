"""`Rejected`: a source file that its contract does not allow."""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN_FILE = "UnknownFile"
"""The reason of a file that is of no dimension."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why a file is set aside: `reason` is the class of the trouble in one word, `explanation` a sentence."""

    reason: str
    explanation: str
