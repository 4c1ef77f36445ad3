"""What a late record says of the windows that it missed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from contracts.records.headers import as_bytes
from contracts.records.missed_windows import MissedWindows, missed_windows_headers

SAID = ("2013-01-01T10:15:00.000001Z", "2013-01-01T10:30:00.000000Z", "2013-01-01T13:00:00.000000Z")


def test_what_is_written_is_read_again() -> None:
    headers = [(name, as_bytes(value)) for name, value in missed_windows_headers(*SAID)]
    at = [datetime(2013, 1, 1, 10, 15, 0, 1, tzinfo=UTC), datetime(2013, 1, 1, 10, 30, tzinfo=UTC)]
    assert MissedWindows.of(headers) == (*at, datetime(2013, 1, 1, 13, tzinfo=UTC))


@pytest.mark.parametrize(
    "wrong",
    [
        *[b"", b"soon", b"\xff", b"2013-01-01T10:15:00", b"+10000-01-01T00:00:00.000000Z"],
        *[b"9999-12-31T23:59:59-01:00", b"0001-01-01T00:00:00+01:00"],  # in UTC it is in no year
    ],
)
def test_what_is_no_instant_says_nothing(wrong: bytes) -> None:
    (name, _), *others = missed_windows_headers(*SAID)
    assert MissedWindows.of([(name, wrong), *others]) is None
    assert MissedWindows.of(others) is None
