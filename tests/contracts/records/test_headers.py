"""What is read of a record's headers, whatever they are."""

from __future__ import annotations

import pytest

from contracts.records.headers import header_of, headers_of
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from tests.contracts.wire import records_of
from tests.dead_letters.place import Place
from tests.raw_records import NO_TEXT, RawRecord, send_raw


def test_of_several_headers_with_one_name_the_last_counts() -> None:
    assert header_of([("a", b"1"), ("b", b"2"), ("a", b"3")], "a") == b"3"
    assert header_of([("a", b"1"), ("a", None)], "a") is None
    assert header_of([], "a") is None


@pytest.mark.system
@pytest.mark.parametrize(
    "names",
    [
        [NO_TEXT],
        [NO_TEXT, b"a", b"b"],
        [b"a", NO_TEXT, b"b"],
        [b"a", b"b", NO_TEXT],
        [NO_TEXT, NO_TEXT],
        [b"a", b"\xff\xfe", b"", NO_TEXT],
    ],
)
def test_a_name_that_is_no_text_is_told_each_time_that_it_is_read(stack: LocalStack, names: list[bytes]) -> None:
    settings = stack.settings()
    with Registry(settings.registry) as registry:
        made = Place(settings, registry).created()
        record = RawRecord(None, b"v", tuple((name, value) for name in names for value in (b"x", None)))
        send_raw(settings.kafka, made.topic, 0, [record])
        (message,) = records_of(made.topic, settings)
    # Often enough for Python to take a shorter way, on which it overlooks what confluent-kafka does.
    for _ in range(1000):
        assert headers_of(message) == []
        assert not list(reversed([]))
