"""What is known beside the records: `Letters`, of what was not counted, and `Known`, the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from services.audit.records.groups import Instants
from services.audit.values.digest import Digests
from services.audit.values.place import Codes

FOREVER = int(np.iinfo(np.int64).max)
"""An instant after all others."""
_NO_CODES: Codes = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Letters:
    """What a topic says of raw records that were not counted, one entry of each array for each letter. `source` is the raw record's place,
    `payload` the digest of its bytes. `over` is when the last of its windows ends that are over by the letter's word: it counts in later ones,
    where windows overlap. FOREVER: in none.

    `has_deleted`: some are gone. Those of records that were sent since `kept_since_ms` are not, by the contract.
    """

    topic: str
    at: Codes
    source: Codes
    payload: Digests
    over: Instants
    has_deleted: bool = False
    kept_since_ms: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """What else there is to know. `latest`: the raw topic's ends after everything else was read. `purged`, `redriven`: raw records whose dead
    letters were given up, or that were sent back.

    `newest_before`: no raw record that an earlier audit has read has a later event time, in microseconds since 1970; None: nobody knows.
    Groups that were written since `kept_since_ms`, and raw records that were sent since `raw_kept_since_ms`, are there still, by the contracts.
    """

    latest: Mapping[int, int]
    late_after_minutes: int
    watermark_of: Literal["slower", "faster"] = "slower"
    purged: Codes = field(default_factory=lambda: _NO_CODES)
    redriven: Codes = field(default_factory=lambda: _NO_CODES)
    newest_before: int | None = None
    kept_since_ms: int = 0
    raw_kept_since_ms: int = 0
