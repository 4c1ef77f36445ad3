"""Dead letters on a real broker go back once and are given up with an entry in the ledger; read back by a fresh client."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from hashlib import sha256

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from contracts.dead_letters import transaction
from contracts.dead_letters.ledger import LEDGER
from contracts.dead_letters.letter import DeadLetter
from contracts.dead_letters.log import wait_for_open_transactions
from contracts.dead_letters.purge import plan_purge, purge
from contracts.dead_letters.selection import Selection, Verdict
from contracts.errors import ConsumeError, SettlementError
from contracts.events import Settlement
from contracts.records.codec import Codec
from contracts.records.dead_letter_headers import REDRIVEN_FROM
from tests import sample
from tests.administered import limit_batches
from tests.dead_letters.place import DISPATCHED, Place
from tests.producers import ordered

pytestmark = pytest.mark.system


def test_a_record_goes_back_as_it_was_with_its_dead_letter_named(place: Place) -> None:
    headers: list[tuple[str, bytes | None]] = [
        ("ce_id", b"own"),
        ("ce_causationid", b"c"),
        ("odd", None),
        ("x", b"\xff"),
    ]
    place.send_letters(b"first", None, original=headers)
    assert place.redrive() == {Verdict.REDRIVE: 2}
    record, tombstone = place.records()
    assert (record.key(), record.value(), record.partition()) == (b"key-0", b"first", 1)
    assert (record.timestamp()[1], tombstone.value()) == (place.began_ms, None)
    assert record.headers() == [*headers, (REDRIVEN_FROM, f"{place.dead_letter_topic}/0/0".encode())]
    first, second = place.entries()
    assert (first.dead_letter, first.coordinate) == (f"{place.dead_letter_topic}/0/0", f"{place.topic}/1/0")
    assert (first.action, first.reason, second.value_sha256) == (Settlement.redriven, "Trial", None)


def test_a_record_that_its_topic_would_not_take_stays_and_keeps_no_other(place: Place) -> None:
    place.send_letters(secrets.token_bytes(1_048_000), b"b")
    assert place.redrive() == {Verdict.TOO_LONG: 1, Verdict.REDRIVE: 1}
    assert [record.value() for record in place.records()] == [b"b"]


def test_what_a_stranger_wrote_is_cut_in_the_ledger(place: Place) -> None:
    place.send_letters(b"a", reason="r" * 950_000)
    purge(place.letters, plan_purge(place.letters, lambda letter: True))
    assert [entry.reason for entry in place.entries()] == ["r" * 1_000]


def test_a_second_redrive_sends_only_what_is_new(place: Place) -> None:
    place.send_letters(b"a", b"b")
    place.redrive()
    place.send_letters(b"c", first_offset=2)
    assert place.redrive() == {Verdict.REDRIVEN: 2, Verdict.REDRIVE: 1}
    assert [record.value() for record in place.records()] == [b"a", b"b", b"c"]


def test_a_record_with_dead_letters_on_two_topics_goes_back_once(place: Place) -> None:
    """As an enriched one that neither the lake nor alerting can handle."""
    other = Place(place.settings, place.registry).created()
    other.catalog.topics.update({place.topic: place.contract})
    place.send_letters(b"a", b"b")
    other.send_letters(b"a", b"b", of=place.topic)
    assert place.redrive(coordinate=f"{place.topic}/1/0") == {Verdict.REDRIVE: 1}
    assert other.redrive() == {Verdict.REDRIVEN: 1, Verdict.REDRIVE: 1}
    assert place.redrive() == {Verdict.REDRIVEN: 2}
    purge(place.letters, plan_purge(place.letters, lambda letter: True))
    assert not any(map(other.letters.ledger(complete=True).is_purged, other.letters.letters()))
    assert [record.value() for record in place.records()] == [b"a", b"b"]


def test_a_dry_run_sends_nothing_and_fences_nobody(place: Place) -> None:
    place.send_letters(b"a", b"a")
    place.send_letters(b"a")  # the second reader's dead letter of the same record
    with place.letters.settling() as settling:
        assert place.redrive(dry_run=True) == {Verdict.REDRIVE: 2, Verdict.REDRIVEN: 1}
        settling.redrive(next(place.letters.letters()))
    assert [record.value() for record in place.records()] == [b"a"]


def test_a_redrive_that_was_cut_off_is_undone_and_kept_out(place: Place) -> None:
    place.send_letters(b"a", b"b")
    zombie = place.letters.settling().__enter__()
    zombie.redrive(next(place.letters.letters()))
    zombie._producer.flush(10)
    assert place.redrive() == {Verdict.REDRIVE: 2}
    # Its end says so, too, and nothing else.
    with pytest.raises(SettlementError, match="another redrive or purge"):
        zombie.__exit__(None, None, None)
    assert [record.value() for record in place.records()] == [b"a", b"b"]
    assert len(place.entries()) == 2


def test_two_redrives_of_different_topics_at_the_same_moment_send_a_record_once(place: Place) -> None:
    """Each has a dead letter of it, and reads the ledger before the other has written."""
    other = Place(place.settings, place.registry).created()
    other.catalog.topics.update({place.topic: place.contract})
    place.send_letters(b"a")
    other.send_letters(b"a", of=place.topic)
    first = other.letters.settling().__enter__()
    assert not any(map(other.letters.ledger(complete=True).is_redriven, other.letters.letters()))
    assert place.redrive() == {Verdict.REDRIVE: 1}
    with pytest.raises(SettlementError, match="run it again"):
        first.redrive(next(other.letters.letters()))
        first.commit()
    assert other.redrive() == {Verdict.REDRIVEN: 1}
    assert [record.value() for record in place.records()] == [b"a"]


def test_entries_behind_somebody_elses_open_transaction_are_waited_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of committed records don't see them until it ends; a redrive that did not know that would send twice."""
    place.send_letters(b"a")
    somebody = ordered({**place.settings.kafka.client_config(), "transactional.id": place.topic})
    somebody.init_transactions(30)
    somebody.begin_transaction()
    for partition in range(place.catalog.topic(LEDGER).partitions):
        somebody.produce(LEDGER, b"never committed", partition=partition)
    somebody.flush(10)
    with place.letters.settling() as settling:
        settling.redrive(next(place.letters.letters()))
    assert place.entries() == []
    monkeypatch.setattr("contracts.dead_letters.log._OPEN_TRANSACTION_SECONDS", 0.5)
    with pytest.raises(ConsumeError, match="a transaction has been open"):
        place.redrive()
    somebody.abort_transaction(30)
    assert place.redrive() == {Verdict.REDRIVEN: 1}
    assert len(place.records()) == 1


def test_what_a_topic_does_not_take_is_named_and_nothing_of_its_transaction_is_sent(place: Place) -> None:
    admin = AdminClient({**place.settings.kafka.client_config()})
    limit_batches(admin, place.topic, 500)
    place.send_letters(b"a", secrets.token_bytes(2_000))
    with pytest.raises(SettlementError, match=rf"{place.dead_letter_topic}/0/1 to {place.topic}: .*too large"):
        place.redrive()
    assert (place.records(), place.entries()) == ([], [])
    assert place.redrive(coordinate=f"{place.topic}/1/0") == {Verdict.REDRIVE: 1}


def test_a_long_redrive_is_cut_into_transactions(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "TRANSACTION_LETTERS", 2)
    place.send_letters(*[b"v"] * 5)
    place.redrive()
    # Each commit leaves its marker behind, which is an offset and no record.
    assert [record.offset() for record in place.records()] == [0, 1, 3, 4, 6]
    assert len(place.entries()) == 5


def test_no_transaction_stays_open_while_other_letters_go_by(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "OPEN_SECONDS", 0.0)
    place.send_letters(b"a", b"b", b"c")
    with place.letters.settling() as settling:
        letters = settling.over(place.letters.letters())
        settling.redrive(next(letters))
        next(letters)
        assert [record.value() for record in place.records()] == [b"a"]
    place.redrive()
    assert [record.offset() for record in place.records()] == [0, 2, 4]


def test_a_purge_writes_the_ledger_deletes_a_beginning_and_says_what_stays(place: Place) -> None:
    place.send_letters(*[b"v"] * 4)
    place.redrive(coordinate=f"{place.topic}/1/0")
    place.redrive(coordinate=f"{place.topic}/1/2")
    plan = plan_purge(place.letters, place.letters.ledger(complete=True).is_redriven)
    found = plan.partitions[0]
    assert (found.letters, found.upto, found.behind) == (1, 1, 1)
    assert found.kept == f"{place.dead_letter_topic}/0/1"
    assert purge(place.letters, plan) == 1
    assert [letter.offset for letter in place.letters.letters()] == [1, 2, 3]
    purged = [entry for entry in place.entries() if entry.action is Settlement.purged]
    assert [(entry.dead_letter, entry.coordinate) for entry in purged] == [
        (f"{place.dead_letter_topic}/0/0", f"{place.topic}/1/0")
    ]


def test_a_purge_that_was_cut_off_before_it_deleted_is_run_again_without_a_second_entry(place: Place) -> None:
    place.send_letters(b"a", b"b")
    letters = list(place.letters.letters())
    with place.letters.settling() as settling:
        settling.purge(letters[0])
    assert place.redrive() == {Verdict.PURGED: 1, Verdict.REDRIVE: 1}
    plan = plan_purge(place.letters, Selection(until=letters[1].timestamp).takes)
    assert (plan.letters, purge(place.letters, plan)) == (1, 0)
    assert [letter.offset for letter in place.letters.letters()] == [1]


def test_letters_are_read_beyond_aborted_ones_and_markers(place: Place) -> None:
    producer = ordered({**place.settings.kafka.client_config(), "transactional.id": place.topic})
    producer.init_transactions(30)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(place.dead_letter_topic, end.__name__)
        producer.flush(10)
        end(30)
    assert [letter.value for letter in place.letters.letters()] == [b"commit_transaction"]
    wait_for_open_transactions(place.settings.kafka, place.dead_letter_topic, 1)


def test_what_is_no_entry_of_the_ledger_is_passed_over_by_name(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.send_letters(b"a")
    monkeypatch.setattr("contracts.dead_letters.ledger.LEDGER", place.dead_letter_topic)
    letters = place.letters
    assert letters.ledger(complete=False).passed_over == [f"{place.dead_letter_topic}/0/0"]
    assert letters.passed_over == [f"{place.dead_letter_topic}/0/0"]
    assert place.redrive() == {Verdict.REDRIVE: 1}
    assert len(place.records()) == 1


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("is_taken", [False, True], ids=["an id of nobody", "an id of another subject"])
def test_an_entry_counts_whose_schema_id_a_registry_made_anew_does_not_know(
    place: Place, monkeypatch: pytest.MonkeyPatch, version: int, is_taken: bool
) -> None:
    schema_id = place.registry.latest(sample.catalog().topic(DISPATCHED).subject).id if is_taken else 2**31 - 1
    entry: dict[str, object] = {
        "dead_letter": f"{place.dead_letter_topic}/0/0",
        "coordinate": f"{place.topic}/1/0",
        "service": "dispatches_enriched",
        "action": "redriven",
        "reason": None,
        "value_sha256": sha256(b"a").hexdigest(),
        "settled_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    if version == 0:
        del entry["service"]
    before = Codec(lambda _: place.catalog.schemas(LEDGER)[version])
    place.send_letters(b"a", before.encode(schema_id, entry))
    monkeypatch.setattr("contracts.dead_letters.ledger.LEDGER", place.dead_letter_topic)
    assert place.redrive() == {Verdict.REDRIVEN: 1, Verdict.REDRIVE: 1}


def test_what_retention_took_is_no_trouble(place: Place) -> None:
    place.send_letters(b"a", b"b")
    admin = AdminClient(dict(place.settings.kafka.client_config()))
    for deleted in admin.delete_records([TopicPartition(place.dead_letter_topic, 0, 1)]).values():
        deleted.result(30)
    assert place.redrive() == {Verdict.REDRIVE: 1}


def test_a_broker_without_the_topics_is_told_so(place: Place) -> None:
    topic = place.letters
    topic._there.pop("deadletters.settled.v1")
    assert topic.ledger(complete=False).is_redriven(DeadLetter("t", 0, 0, None, None, None, ())) is False
    with pytest.raises(SettlementError, match="topics create"):
        topic.settling()
    topic._there.clear()
    with pytest.raises(ConsumeError, match="topics create"):
        next(topic.letters())
