"""Machinery and its tests name nothing of the reference domain: they read names from the contracts and from the list of deployables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from deploy.local.processes.deployable import ROOT
from tests.second_domain.domain import (
    PATTERNS,
    files_of_tests,
    is_domain,
    machinery_files,
    machinery_tests,
    product_files,
)

WORDS = (
    *("flight", "departure", "departed", "arrivals", "airline", "airport", "plane", "aircraft", "carrier"),
    *("tail_number", "tailnum", "weather", "gust", "nycflights", "new york", "long_haul", "longhaul"),
    *("distance_miles", "delay_minutes", r"\bJFK\b", r"\bEWR\b", r"\bLGA\b"),
)
_NAMED = re.compile("|".join(WORDS), re.IGNORECASE)
_THE_YEAR = re.compile(f"{_NAMED.pattern}|2013", re.IGNORECASE)
"""In a test it is a year as any other."""
_KAFKAS = re.compile(r"max\.in\.flight|in_flight|_inflight|requests? in flight", re.IGNORECASE)
"""What was sent and is not acknowledged yet."""
_ELSEWHERE = ("tests/second_domain/*", "tests/bench/peers/locks/*")
"""This test and the other domain's words; versions of other people's packages."""


def test_machinery_names_nothing_of_the_reference_domain() -> None:
    assert _lines_with(_THE_YEAR, machinery_files()) == []


def test_the_tests_of_machinery_name_nothing_of_the_reference_domain() -> None:
    paths = [path for path in machinery_tests() if not any(fnmatchcase(path, each) for each in _ELSEWHERE)]
    assert len(paths) > 300
    assert _lines_with(_NAMED, paths) == []


def _lines_with(named: re.Pattern[str], paths: Iterable[str]) -> list[str]:
    return [
        f"{path}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1)
        if named.search(_KAFKAS.sub("", line))
    ]


def test_every_pattern_of_the_domain_matches_a_file() -> None:
    paths = [*product_files(ROOT), *files_of_tests(ROOT)]
    for pattern in PATTERNS:
        matching = [path for path in paths if fnmatchcase(path, pattern.removeprefix("!"))]
        assert any(is_domain(path) != pattern.startswith("!") for path in matching), pattern
