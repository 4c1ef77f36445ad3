"""Machinery names nothing of the reference domain: it reads names from the contracts and from the list of deployables."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from deploy.local.processes.deployable import ROOT
from tests.second_domain.domain import PATTERNS, is_domain, machinery_files, product_files

WORDS = (
    *("flight", "departure", "departed", "arrivals", "airline", "airport", "plane", "aircraft", "carrier"),
    *("tail_number", "tailnum", "weather", "gust", "nycflights", "new york", "2013", "long_haul", "longhaul"),
    *("distance_miles", "delay_minutes"),
)
_NAMED = re.compile("|".join(WORDS), re.IGNORECASE)
_KAFKAS = re.compile(r"in.?flight", re.IGNORECASE)
"""What was sent and is not acknowledged yet."""


def test_machinery_names_nothing_of_the_reference_domain() -> None:
    named = [
        f"{path}:{number}: {line.strip()}"
        for path in machinery_files()
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1)
        if _NAMED.search(_KAFKAS.sub("", line))
    ]
    assert named == []


def test_every_pattern_of_the_domain_matches_a_file() -> None:
    paths = list(product_files(ROOT))
    for pattern in PATTERNS:
        matching = [path for path in paths if fnmatchcase(path, pattern.removeprefix("!"))]
        assert any(is_domain(path) != pattern.startswith("!") for path in matching), pattern
