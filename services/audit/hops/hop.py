"""`Hop`: a part of the way that can be audited alone."""

from __future__ import annotations

from enum import StrEnum


class Hop(StrEnum):
    """Raw topic → derived topic; raw topic → aggregate; two raw topics → join; raw topic → distinct events; raw topic → events with what was remembered
    of those before them; raw topic → list; topic → lake table; topic → alerts."""

    DERIVED = "derived"
    AGGREGATES = "aggregates"
    JOINS = "joins"
    DISTINCT = "distinct"
    SEQUENCES = "sequences"
    RANKINGS = "rankings"
    LAKE = "lake"
    ALERTS = "alerts"


HOPS = tuple(Hop)
