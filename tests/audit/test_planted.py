"""Every kind of fault, planted at every hop of a real stack, is found, and nothing else is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from deltalake import DeltaTable

from contracts.definitions.topic import Lake
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from services.audit.__main__ import run
from services.audit.errors import CouldNotAudit
from services.audit.hops.hop import Hop
from services.audit.records.records import Reading, read
from services.audit.report import Report
from services.audit.sources import broker
from services.audit.values.field_sets import UNKNOWN
from tests.audit.way import (
    ACTIVATIONS,
    ALERTS,
    DELIVERED,
    DERIVED,
    DIMENSIONS,
    HEAVY,
    LEDGER,
    OVERDUE,
    PUNCTUAL,
    RAW,
    RULES,
    SERVED,
    Sent,
    Way,
)
from tests.contracts.wire import register_protobuf
from tests.producers import ordered

VERSION_0 = {"couriers": 0, "depots": 0, "vans": 0}
LONG_AGO = round((datetime.now(UTC) - timedelta(days=40)).timestamp() * 1000)
"""In ms: longer than the contracts keep records."""
OTHER = "names dimension versions that another contract made, what was looked up in them not compared"
GONE = "names dimension versions that are gone, what was looked up in them not compared"


@pytest.fixture(scope="module")
def registry(stack: LocalStack) -> Iterator[Registry]:
    with Registry(stack.settings().registry) as client:
        yield client


@pytest.fixture
def way(stack: LocalStack, registry: Registry, tmp_path: Path) -> Iterator[Way]:
    with Way(stack, registry, tmp_path) as made:
        yield made


def found(report: Report) -> set[tuple[str, str]]:
    """Kind and coordinate of every finding."""
    assert len(report.findings) == len({(each.kind, each.coordinate) for each in report.findings}), report.findings
    return {(each.kind, each.coordinate) for each in report.findings}


def noted(report: Report, text: str) -> int:
    return sum(tally.notes[text] for tally in report.tallies)


def test_what_went_right_is_clean_and_the_next_audit_begins_behind_it(way: Way) -> None:
    way.run([*way.dispatch(12), *way.dispatch(3, partition=1)])
    first = way.audit()
    assert first.findings == []
    assert {tally.hop: tally.records for tally in first.tallies if tally.partition.endswith("/0")} == {
        "sent by producers": 12,
        f"{way.name(RAW)} → {way.name(DERIVED)}": 12,
        f"{way.name(RAW)} → lake": 12,
        f"{way.name(DERIVED)} → lake": 12,
        f"{way.name(ALERTS)} → lake": 1,
        f"{way.name(DERIVED)} → alerts": 12,
    }
    way.run(way.dispatch(5))
    second = way.audit(full=False)
    assert (second.findings, second.since) == ([], first.cut_at)
    assert sum(tally.records for tally in second.tallies if tally.hop.endswith(way.name(DERIVED))) == 5
    assert way.audit().findings == []


@pytest.fixture
def two(stack: LocalStack, registry: Registry, tmp_path: Path) -> Iterator[Way]:
    """Where two pipelines read the raw topic, one of them with a filter."""
    with Way(stack, registry, tmp_path, more=[HEAVY]) as made:
        yield made


def test_what_a_filter_leaves_out_is_no_loss_and_what_it_should_let_through_is(two: Way) -> None:
    near, far = two.dispatch(4, weight_grams=1999), two.dispatch(4, weight_grams=2000)
    two.run([*near, *far])
    never = two.audit()
    assert never.findings == []
    assert noted(never, "not derived, for heavy_parcels has never run here") == 8

    two.derive(two.far(far[1:]), HEAVY)
    two.derive(two.far(near[:1]), HEAVY)
    two.taken_in("heavy_parcels", RAW, *near, *far)
    report = two.audit(Hop.DERIVED)
    assert found(report) == {("lost", two.at(0, far[0].offset)), ("phantom", two.at(0, near[0].offset))}
    assert noted(report, "left out by the filter") == 3


def test_a_record_in_the_wrong_topic_of_a_branch_or_in_two_of_them_is_found(
    stack: LocalStack, registry: Registry, tmp_path: Path
) -> None:
    with Way(stack, registry, tmp_path, more=[OVERDUE, PUNCTUAL]) as way:
        late, early = way.dispatch(3, late_minutes=30), way.dispatch(3, late_minutes=0)
        parcels = [*late, *early]
        way.run(parcels)
        way.derive(way.punctual(late[1:], OVERDUE), OVERDUE)
        way.derive(way.punctual([late[0], *early], PUNCTUAL), PUNCTUAL)
        way.taken_in("dispatches_by_punctuality", RAW, *parcels)
        overdue, punctual, either = (
            f"{way.name(RAW)} → {each}" for each in (way.name(OVERDUE), way.name(PUNCTUAL), "one of 2")
        )
        first = way.at(0, late[0].offset)

        def findings() -> set[tuple[str, str, str]]:
            return {(each.kind, each.hop, each.coordinate) for each in way.audit(Hop.DERIVED).findings}

        # The filters tell which topic is the right one.
        assert findings() == {("lost", overdue, first), ("phantom", punctual, first)}
        way.derive(way.punctual([late[0]], OVERDUE), OVERDUE)
        of_two = {("doubled", either, first)}
        assert findings() - {("out of order", overdue, first)} == of_two | {("phantom", punctual, first)}
        # Without them, only that a record is in two.
        way.settings.filters_file.write_text("")
        assert findings() - {("out of order", overdue, first)} == of_two


def test_faults_in_what_is_made_of_one_in_parts_are_found(
    stack: LocalStack, registry: Registry, tmp_path: Path
) -> None:
    with Way(stack, registry, tmp_path, more=[DELIVERED, SERVED]) as way:
        parcels = way.deliver(8)
        parts = way.served(parcels)
        way.derive(parts[:2], SERVED)
        way.taken_in("depots_served", DELIVERED, *parcels[:1])
        way.taken_in("depots_served", DELIVERED, *parcels)
        rest = parts[2:]
        planted = [
            rest[0],  # its second part is lost
            *rest[2:4],
            rest[3],  # comes twice
            replace(rest[4], parts=3),
            rest[5],  # they say otherwise
            replace(rest[6], fields={**rest[6].fields, "courier": "XX"}),
            rest[7],
            rest[9],
            rest[8],  # in the wrong order
            replace(rest[10], ce_id=rest[10].ce_id.rpartition("/")[0]),  # without a part
        ]
        way.derive(planted, SERVED)
        # Of the last one nothing was made, and the filter says that there is something of each.
        report = way.audit(Hop.DERIVED)
        at = [way.at(0, parcel.offset, DELIVERED) for parcel in parcels]
        own = f"{way.name(SERVED)}/0/"
        assert {each for each in found(report) if not each[1].startswith(own)} == {
            ("lost", at[1]),
            ("doubled", f"{at[2]}/1"),
            ("changed", at[3]),
            ("lost", at[3]),
            ("changed", at[4]),
            ("out of order", at[5]),
            ("lost", at[6]),
            ("lost", at[7]),
        }
        assert [each[0] for each in found(report) if each[1].startswith(own)] == ["phantom"]
        assert noted(report, "records of several parts, as many as they say themselves") == 6


RULE_OF_PARTS = """\
rules:
  - name: served
    description: Planted.
    topic: depots.served.v1
    field: delivered_late_minutes
    operator: ">="
    threshold: -1000
    severity: info
    message: "{depot} was served"
"""


def test_rows_and_alerts_of_parts_are_told_apart(stack: LocalStack, registry: Registry, tmp_path: Path) -> None:
    with Way(stack, registry, tmp_path, more=[DELIVERED, SERVED]) as way:
        table = Lake(table=f"parts_{uuid4().hex[:8]}", format="delta", partition_by=(), history_days=7)
        with_table = way.catalog.topic(SERVED).model_copy(
            update={"lake_section": table, "consumers": ("alerting", "lake")}
        )
        way.catalog = replace(way.catalog, topics={**way.catalog.topics, SERVED: with_table})
        way.settings.rules_file.write_text(RULE_OF_PARTS)
        rule = way.rule(
            -1000,
            name="served",
            topic=SERVED,
            field="delivered_late_minutes",
            message="{depot} was served",
            severity="info",
        )
        # Enough of them for a part of one to be as far along as another part of the next.
        parcels = way.deliver(20)
        way.taken_in("depots_served", DELIVERED, *parcels)
        parts = way.derive(way.served(parcels), SERVED)
        way.land(SERVED, way.rows(SERVED, parts), *parts)
        raised = way.alarm(way.alerts(parts, rule, SERVED))
        way.taken_in("alerting", SERVED, *parts)
        way.land(ALERTS, way.rows(ALERTS, raised), *raised)
        assert way.audit().findings == []

        (parcel,) = way.deliver(1)
        way.taken_in("depots_served", DELIVERED, parcel)
        first, second = way.derive(way.served([parcel]), SERVED)
        way.land(SERVED, way.rows(SERVED, [first]), first, second)
        alerts = way.alerts([second], rule, SERVED)
        raised = way.alarm(alerts)
        way.taken_in("alerting", SERVED, first, second)
        way.land(ALERTS, way.rows(ALERTS, raised), *raised)
        own = way.name(SERVED)
        assert found(way.audit()) == {
            ("lost", f"{own}/0/{second.offset}"),
            ("lost", f"{own}/0/{first.offset}"),
        }


def test_of_a_pipeline_that_began_since_the_last_audit_everything_is_looked_at(two: Way) -> None:
    parcels = two.dispatch(5, weight_grams=2500)
    two.run(parcels)
    assert two.audit(full=False).findings == []
    two.derive(two.far(parcels[1:]), HEAVY)
    two.taken_in("heavy_parcels", RAW, *parcels)
    report = two.audit(full=False)
    assert report.since is None
    assert found(report) == {("lost", two.at(0, parcels[0].offset))}
    two.derive(two.far(parcels[:1]), HEAVY)
    assert two.audit(full=False).findings == []
    assert two.audit(full=False).since is not None


def test_without_a_filter_to_compare_the_audit_says_so(two: Way) -> None:
    parcels = two.dispatch(3, weight_grams=2500)
    two.run(parcels)
    two.derive(two.far(parcels[:1]), HEAVY)
    two.taken_in("heavy_parcels", RAW, *parcels)
    two.settings.filters_file.write_text("")
    report = two.audit(Hop.DERIVED)
    assert report.findings == []
    assert noted(report, "left out, and no filter tells whether rightly") == 2


def test_a_record_that_nobody_can_read_passes_no_filter_unseen(two: Way) -> None:
    parcels = two.dispatch(2, weight_grams=2500)
    (bad,) = two.send(RAW, [replace(parcels[0], body=b"junk")])
    two.run(parcels)
    two.derive(two.far(parcels), HEAVY)
    for pipeline in ("dispatches_enriched", "heavy_parcels"):
        two.taken_in(pipeline, RAW, *parcels, bad)
    two.set_aside(bad)
    report = two.audit(Hop.DERIVED)
    assert [(each.kind, each.coordinate, each.hop) for each in report.findings] == [
        ("lost", two.at(0, bad.offset), f"{two.name(RAW)} → {two.name(HEAVY)}")
    ]


def test_a_field_that_one_of_two_derived_topics_changes_is_found_in_that_one(two: Way) -> None:
    parcels = two.dispatch(3, weight_grams=2500)
    two.run(parcels)
    far = two.far(parcels)
    far[1] = replace(far[1], fields={**far[1].fields, "origin": "STH"})
    two.derive(far, HEAVY)
    two.taken_in("heavy_parcels", RAW, *parcels)
    report = two.audit(Hop.DERIVED)
    assert [(each.kind, each.hop) for each in report.findings] == [("changed", f"{two.name(RAW)} → {two.name(HEAVY)}")]


def test_records_of_a_newer_version_than_the_contracts_are_audited(way: Way) -> None:
    parcels = way.dispatch(2)
    way.widen(RAW, "weight_grams", "long")
    way.run([*parcels, *way.dispatch(3)])
    assert way.audit().findings == []


def test_entries_of_newer_versions_are_read(way: Way) -> None:
    parcels = way.dispatch(6)
    records = way.derive(way.enriched(parcels[1:]))
    way.taken_in("dispatches_enriched", RAW, *parcels)
    way.taken_in("alerting", DERIVED, *records)
    way.rename(LEDGER, "coordinate")
    way.rename(ACTIVATIONS, "from_offset")
    way.rename(ALERTS, "coordinate")
    way.settle(parcels[0])
    way.activate(threshold=60, from_offset=0)
    way.alarm(way.alerts(records))
    report = way.audit(Hop.DERIVED, Hop.ALERTS)
    assert found(report) == set()
    assert (noted(report, "purged dead letters"), noted(report, "alerts")) == (1, 1)


def test_a_field_that_an_older_version_lacks_is_not_compared_and_the_others_are(way: Way) -> None:
    lacking = {"courier_name", "van_seats"}
    way.before(DERIVED, *lacking)
    parcels = way.dispatch(3)
    records = [
        replace(each, fields={name: value for name, value in each.fields.items() if name not in lacking})
        for each in way.enriched(parcels)
    ]
    records[1] = replace(records[1], fields={**records[1].fields, "van_model": "F-900"})
    way.derive(records)
    way.taken_in("dispatches_enriched", RAW, *parcels)
    report = way.audit(Hop.DERIVED)
    assert found(report) == {("changed", way.at(0, 1))}
    assert noted(report, "of a schema version without some looked-up fields, those not compared") == 2


@pytest.mark.parametrize("is_known", [True, False])
def test_a_carried_field_that_an_older_version_lacks_is_not_compared_and_the_others_are(
    way: Way, is_known: bool
) -> None:
    """It was added to the derived topic long after the raw one had it. What was looked up by it can't be made again."""
    newest = way.dispatch(1)
    way.derive(way.enriched(newest))
    way.before(DERIVED, "van_id", is_known=is_known)
    parcels = way.dispatch(3)
    fine, changed, keyed = way.enriched(parcels)
    changed = replace(changed, fields={**changed.fields, "late_minutes": 59})
    older = [fine, changed, replace(keyed, key="another")]
    way.derive(
        replace(each, fields={name: value for name, value in each.fields.items() if name != "van_id"}) for each in older
    )
    way.taken_in("dispatches_enriched", RAW, *newest, *parcels)
    report = way.audit(Hop.DERIVED)
    # Of a version that the contract does not know, the key alone.
    assert found(report) == {("changed", each.ce_id) for each in (changed, keyed)[0 if is_known else 1 :]}
    assert noted(report, "of a schema version without some carried fields, those not compared") == 3
    assert noted(report, "of a schema version without some looked-up fields, those not compared") == 3


def test_of_a_joined_record_it_is_told_whether_its_version_has_all_carried_fields(way: Way) -> None:
    (newest,) = way.derive(way.enriched(way.dispatch(1)))
    way.before(DERIVED, "van_id")
    fields = {name: value for name, value in newest.fields.items() if name != "van_id"}
    (older,) = way.derive([replace(newest, fields=fields)])
    contract = way.catalog.topic(DERIVED)
    reading = Reading(
        way.settings.kafka.client_config(),
        way.settings.registry,
        contract.name,
        contract.subject,
        0,
        newest.offset,
        older.offset + 1,
        0.0,
        way.catalog.schema(DERIVED),
        pairs=(("parcel_id",), ("van_id",)),
        made_of=(way.name(RAW), way.name(DERIVED)),
    )
    assert read(reading).compared.tolist() == [0, UNKNOWN]
    assert read(replace(reading, pairs=(("parcel_id",), ("origin",)))).compared.tolist() == [0, 0]


def test_an_id_of_something_that_is_no_avro_record_is_a_dead_letters_own_business(
    way: Way, registry: Registry, stack: LocalStack
) -> None:
    parcels = way.dispatch(2)
    ids = [
        registry.register(f"{way.name(RAW)}.of-somebody-else-value", '"string"'),
        register_protobuf(stack.registry.url, f"{way.name(RAW)}.of-others-value"),
    ]
    foreign = way.send(
        RAW, [replace(parcels[0], body=b"\x00" + schema_id.to_bytes(4, "big") + b"\x02a") for schema_id in ids]
    )
    way.derive(way.enriched(parcels))
    way.set_aside(*foreign)
    way.taken_in("dispatches_enriched", RAW, *parcels, *foreign)
    assert way.audit(Hop.DERIVED).findings == []


def test_of_a_record_too_large_for_its_dead_letter_the_stump_is_compared(way: Way) -> None:
    parcels = way.dispatch(3)
    large = way.send(RAW, [replace(parcels[0], body=body) for body in (b"x" * 900_000, b"x" * 990_000, b"y" * 990_000)])
    way.derive(way.enriched(parcels))
    way.set_aside(large[0])
    way.set_aside(large[1], stump_of=large[1])
    way.set_aside(large[2], stump_of=large[1])
    way.taken_in("dispatches_enriched", RAW, *parcels, *large)
    assert found(way.audit(Hop.DERIVED)) == {("changed", way.at(0, 5))}


def test_a_record_beyond_its_topics_limit_is_not_to_be_read(way: Way) -> None:
    fits, *others = way.dispatch(3)
    beyond = way.send(RAW, [replace(fits, fields={**fits.fields, "van_id": "x" * 900_000})])
    way.derive(way.enriched([fits, *others]))
    way.set_aside(*beyond)
    way.taken_in("dispatches_enriched", RAW, fits, *others, *beyond)
    assert found(way.audit(Hop.DERIVED)) == set()


def test_a_wrong_value_of_a_lookup_by_two_fields_is_found(way: Way) -> None:
    (van,) = DIMENSIONS["vans"]
    way.key_by(
        "vans",
        {"courier": "courier", "van_id": "van_id"},
        {**van, "courier": "UA"},
        {**van, "courier": "B6", "seats": 2},
        {**van, "courier": "UA", "van_id": "N0", "seats": 1},
    )
    of_nobody = {name: None for name in way.enriched(way.dispatch(1))[0].fields if name.startswith("van_")}
    parcels = [*way.dispatch(3), *way.dispatch(3, van_id="N0"), *way.dispatch(3, van_id=None)]
    right, of_b6, none = way.enriched(parcels[:3])
    small, of_other, _ = way.enriched(parcels[3:6])
    found_none, found_one, unsaid = way.enriched(parcels[6:])

    def but(record: Sent, **fields: Any) -> Sent:
        return replace(record, fields={**record.fields, **fields})

    records = [
        right,
        but(of_b6, van_seats=2),  # of the other courier's van with this van id
        but(none, **of_nobody, unmatched=["vans"]),  # there is one
        but(small, van_seats=1),
        of_other,  # of the courier's other van
        but(found_none, **of_nobody, unmatched=["vans"]),
        found_one,  # nothing is found by a null
        but(unsaid, **of_nobody),
    ]
    way.derive(records)
    way.taken_in("dispatches_enriched", RAW, *parcels)
    report = way.audit(Hop.DERIVED)
    wrong = [("changed", each.ce_id) for each in (of_b6, none, of_other, found_one, unsaid)]
    assert found(report) == {*wrong, ("lost", way.at(0, 0)), ("lost", way.at(0, parcels[5].offset))}


def test_a_wrong_value_of_a_lookup_in_time_is_found(way: Way) -> None:
    (van,) = DIMENSIONS["vans"]
    at = way.enriched(way.dispatch(1))[0].fields["dispatched_at"]
    long_ago, now, never = (at + timedelta(days=days) for days in (-9, 0, 9))
    way.key_by(
        "vans",
        {"van_id": "van_id"},
        {**van, "since": now, "until": never},
        {**van, "since": long_ago, "until": now, "seats": 2},
        {**van, "van_id": "N0", "since": never, "until": None, "seats": 1},
        as_of="dispatched_at",
    )
    names = way.enriched(way.dispatch(1))[0].fields
    of_nobody = {name: None for name in names if name.startswith("van_") and name != "van_id"}
    parcels = [*way.dispatch(3), *way.dispatch(2, van_id="N0")]
    right, of_before, none, too_early, found_later = way.enriched(parcels)

    def but(record: Sent, **fields: Any) -> Sent:
        return replace(record, fields={**record.fields, **fields})

    records = [
        right,
        but(of_before, van_seats=2),  # of the row that held until then
        but(none, **of_nobody, unmatched=["vans"]),  # there is one
        but(too_early, **of_nobody, unmatched=["vans"]),
        but(found_later, van_seats=1, unmatched=[]),  # it does not hold yet
    ]
    way.derive(records)
    way.taken_in("dispatches_enriched", RAW, *parcels)
    wrong = {("changed", each.ce_id) for each in (of_before, none, found_later)}
    # The two that tell the time and the names of the fields.
    assert found(way.audit(Hop.DERIVED)) == {*wrong, ("lost", way.at(0, 0)), ("lost", way.at(0, 1))}


def test_a_dimension_version_of_another_contract_is_noted_and_the_others_are_compared(way: Way) -> None:
    (van,) = DIMENSIONS["vans"]
    way.key_by("vans", {"van_id": "van_id"}, van, as_of="dispatched_at")  # it does not say when it holds
    parcels = way.dispatch(3)
    good = way.enriched(parcels)
    but: list[dict[str, Any]] = [{}, {"courier_name": "Other"}, {"van_seats": 1, "unmatched": ["vans"]}]
    way.derive(replace(each, fields={**each.fields, **wrong}) for each, wrong in zip(good, but, strict=True))
    way.taken_in("dispatches_enriched", RAW, *parcels)
    report = way.audit(Hop.DERIVED)
    assert found(report) == {("changed", way.at(0, parcels[1].offset))}
    assert noted(report, OTHER) == 2


def test_one_dimension_version_that_is_gone_hides_no_fault_in_another(way: Way) -> None:
    parcels = way.dispatch(4)
    gone = {**VERSION_0, "couriers": way.vacuum("couriers")}
    good = [replace(each, fields={**each.fields, "dimension_versions": gone}) for each in way.enriched(parcels)]
    wrong: list[dict[str, Any]] = [
        {},
        {"courier_name": "United", "unmatched": ["couriers"]},  # nobody can tell
        {"van_model": "F-900"},
        {"unmatched": ["vans"]},
    ]
    way.derive(replace(each, fields={**each.fields, **but}) for each, but in zip(good, wrong, strict=True))
    way.taken_in("dispatches_enriched", RAW, *parcels)
    report = way.audit(Hop.DERIVED)
    assert found(report) == {("changed", way.at(0, each.offset)) for each in parcels[2:]}
    assert noted(report, GONE) == 2


def test_a_lookup_that_fills_in_nothing_is_made_again(way: Way) -> None:
    said = yaml.safe_load(way.settings.lookups_file.read_text())
    (vans,) = (join for join in said[DERIVED]["joins"] if join["name"] == "vans")
    vans["fields"] = {}
    way.settings.lookups_file.write_text(yaml.safe_dump(said))
    parcels = [*way.dispatch(1), *way.dispatch(2, van_id="N0")]
    good = way.enriched(parcels)
    way.derive([*good[:2], replace(good[2], fields={**good[2].fields, "unmatched": ["vans"]})])
    way.taken_in("dispatches_enriched", RAW, *parcels)
    assert found(way.audit(Hop.DERIVED)) == {("changed", way.at(0, parcels[1].offset))}


def test_faults_between_raw_and_derived_are_found(way: Way) -> None:
    parcels = [*way.dispatch(13), *way.dispatch(4, partition=1)]
    lost, doubled, both, changed, dead, mangled, purged, repaired, *others = range(len(parcels))
    fine, renamed, unmatched, forgotten, never, *others = others
    one_key = way.send(RAW, [replace(parcels[fine], key="the same")] * 2)
    good = way.enriched(parcels)

    def but(number: int, **fields: Any) -> Sent:
        return replace(good[number], fields={**good[number].fields, **fields})

    records = way.derive(
        [
            *(good[number] for number in (doubled, doubled, both, repaired, fine, *others[1:])),
            *way.enriched(reversed(one_key)),
            but(changed, late_minutes=59),
            but(renamed, courier_name="United"),
            but(unmatched, unmatched=["vans"]),
            but(forgotten, dimension_versions={"couriers": 0, "depots": 0, "vans": way.vacuum("vans")}),
            but(never, dimension_versions={"couriers": 999_999, "depots": 0, "vans": 0}),
            but(others[0], dimension_versions={"couriers": 0, "depots": 0}),
            *[but(repaired, revision=1)] * 2,
            replace(good[fine], ce_id=way.at(0, 999)),
            replace(good[fine], ce_id="parcels.dispatched.v1/0/0"),
        ]
    )
    way.set_aside(parcels[both], parcels[dead])
    way.set_aside(parcels[mangled], value=b"other bytes")
    way.settle(parcels[purged])
    way.taken_in("dispatches_enriched", RAW, *parcels, *one_key)
    report = way.audit(Hop.DERIVED)
    assert found(report) == {
        ("lost", way.at(0, lost)),
        ("doubled", way.at(0, doubled)),
        ("doubled", way.at(0, both)),
        ("out of order", way.at(0, one_key[0].offset)),
        ("changed", way.at(0, changed)),
        ("changed", way.at(0, mangled)),
        ("changed", way.at(0, renamed)),
        ("changed", way.at(0, unmatched)),
        ("changed", way.at(0, never)),
        ("changed", way.at(parcels[others[0]].partition, parcels[others[0]].offset)),
        ("set aside", way.at(0, both)),
        ("set aside", way.at(0, dead)),
        ("set aside", way.at(0, mangled)),
        ("doubled", way.at(0, repaired)),
        ("phantom", way.at(0, 999)),
        ("phantom", way.at(0, records[-1].offset, DERIVED)),
    }
    assert noted(report, "purged dead letters") == 1
    assert noted(report, GONE) == 1
    assert noted(report, "event ids sent before") == 2


def test_what_can_t_be_read_is_a_dead_letter_and_nothing_else(way: Way) -> None:
    parcels = way.dispatch(3)
    bad = way.send(RAW, [replace(parcels[0], body=body) for body in (b"junk", b"\x00\x00\x00\x00\x01", b"\x00")])
    of_junk = replace(way.enriched(bad)[0], body=b"junk")
    way.derive([*way.enriched(parcels), of_junk])
    # The record itself claimed to be a dead letter of lake's.
    way.set_aside(*bad[1:], named="lake")
    way.set_aside(parcels[1])
    way.settle(parcels[1], action="redriven", by="lake")  # once for the letters of both
    way.taken_in("dispatches_enriched", RAW, *parcels, *bad)
    assert found(way.audit(Hop.DERIVED)) == {
        ("phantom", way.at(0, bad[0].offset)),
        ("doubled", way.at(0, parcels[1].offset)),
    }


def test_an_instant_beyond_the_calendar_is_set_aside_and_an_empty_partition_value_is_null(way: Way) -> None:
    parcels = way.dispatch(2, origin="")
    (bad,) = way.dispatch(1, dispatched_at=253_402_300_800_000)
    records = way.derive(way.enriched(parcels))
    for service in ("dispatches_enriched", "lake"):
        way.set_aside(bad, by=service)
    way.taken_in("dispatches_enriched", RAW, *parcels, bad)
    way.land(RAW, [row | {"origin": None} for row in way.rows(RAW, parcels)], *parcels, bad)
    way.land(DERIVED, [row | {"origin": None} for row in way.rows(DERIVED, records)], *records)
    report = way.audit(Hop.LAKE)
    assert (report.findings, noted(report, "dead letters")) == ([], 1)
    # No depot has an empty code.
    assert found(way.audit(Hop.DERIVED)) == {("changed", way.at(0, each.offset)) for each in parcels}


def test_a_key_in_two_partitions_is_found(way: Way) -> None:
    parcels = way.send(RAW, [replace(each, key="the same") for each in way.dispatch(4)])
    way.forget(RAW, 0, before=parcels[0].offset)
    good = way.enriched(parcels)
    way.derive([replace(each, partition=1) for each in good[2:]])
    first, _ = way.derive(good[:2])
    way.taken_in("dispatches_enriched", RAW, *parcels)
    report = way.audit(Hop.DERIVED)
    assert found(report) == {("out of order", way.at(0, each.offset)) for each in parcels[2:]}
    of_it = f"/0/{first.offset}, which is in another partition"
    assert all(of_it in each.detail for each in report.findings), "both records are named"


def test_a_record_behind_the_cut_that_overtook_one_before_it_is_found(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed = [replace(each, key="the same") for each in way.dispatch(3)]
    way.forget(RAW, 0, before=3)
    before = way.send(RAW, keyed[:1])
    taken_in, behind = broker.Broker.taken_in, list[Sent]()

    def taken_in_at_last(asked: broker.Broker, group: str, topic: str) -> dict[int, int]:
        if not behind:  # the cut of the raw topic is taken by now
            behind.extend(way.send(RAW, keyed[1:]))
            way.derive(way.enriched([behind[0], before[0], behind[1]]))
            way.taken_in("dispatches_enriched", RAW, *before, *behind)
        return taken_in(asked, group, topic)

    monkeypatch.setattr(broker.Broker, "taken_in", taken_in_at_last)
    assert found(way.audit(Hop.DERIVED, full=False)) == {("out of order", way.at(0, before[0].offset))}


def test_a_letter_of_lake_that_was_given_up_excuses_no_loss_of_live(way: Way) -> None:
    parcels = way.dispatch(3)
    way.derive(way.enriched(parcels[2:]))
    way.settle(parcels[0], by="lake")
    way.settle(parcels[1], by="dispatches_enriched")
    way.taken_in("dispatches_enriched", RAW, *parcels)
    report = way.audit(Hop.DERIVED)
    assert (found(report), noted(report, "purged dead letters")) == ({("lost", way.at(0, 0))}, 1)


def test_a_letter_that_was_given_up_before_the_record_was_sent_excuses_no_loss_of_it(way: Way) -> None:
    """It was of the record that had its place, in a topic that was made anew."""
    parcels = way.dispatch(3)
    way.derive(way.enriched(parcels[2:]))
    way.settle(parcels[0], ago=timedelta(hours=2))
    way.settle(parcels[1])
    way.taken_in("dispatches_enriched", RAW, *parcels)
    report = way.audit(Hop.DERIVED)
    assert (found(report), noted(report, "purged dead letters")) == ({("lost", way.at(0, 0))}, 1)


def test_one_derived_record_that_has_expired_excuses_none_of_later(way: Way) -> None:
    parcels = way.dispatch(4, timestamp_ms=LONG_AGO)
    others = way.dispatch(20, partition=1, timestamp_ms=LONG_AGO + 600_000)
    way.derive(way.enriched(parcels))
    way.taken_in("dispatches_enriched", RAW, *parcels, *others)
    way.forget(DERIVED, 0, before=1)
    report = way.audit(Hop.DERIVED)
    assert found(report) == {("lost", way.at(1, each.offset)) for each in others}
    assert noted(report, "whose derived records are deleted by now, not compared") == 1


def test_a_partition_that_has_expired_whole_excuses_nothing_that_the_contract_keeps(way: Way) -> None:
    old = way.dispatch(3, partition=1, timestamp_ms=LONG_AGO)
    way.derive(way.enriched(old))
    new = way.dispatch(5)
    way.derive(way.enriched(new[:2]))
    way.taken_in("dispatches_enriched", RAW, *old, *new)
    way.forget(DERIVED, 1, before=3)
    report = way.audit(Hop.DERIVED)
    assert found(report) == {("lost", way.at(0, each.offset)) for each in new[2:]}
    assert noted(report, "whose derived records are deleted by now, not compared") == 3


def test_there_is_no_verdict_behind_a_transaction_that_hangs(way: Way, stack: LocalStack) -> None:
    parcels = way.dispatch(2)
    way.derive(way.enriched(parcels[:1]))
    hanging = ordered({**stack.settings().kafka.client_config(), "transactional.id": f"hangs-{way.name(DERIVED)}"})
    hanging.init_transactions(30)
    hanging.begin_transaction()
    hanging.produce(way.name(DERIVED), b"open", partition=0)
    hanging.flush(30)
    way.derive(way.enriched(parcels[1:]))
    way.taken_in("dispatches_enriched", RAW, *parcels)
    with pytest.raises(
        CouldNotAudit, match=rf"{way.name(DERIVED)}/0: a transaction .* abort --topic .* --start-offset 2"
    ):
        way.audit(Hop.DERIVED)
    hanging.abort_transaction(30)
    assert way.audit(Hop.DERIVED).findings == []


def test_repairs_of_records_that_were_audited_before_are_audited(way: Way) -> None:
    def revised(revision: int, *numbers: int, **fields: Any) -> list[Sent]:
        return way.derive(
            replace(records[each], fields={**records[each].fields, "revision": revision, **fields}) for each in numbers
        )

    records = way.run(way.dispatch(6))
    assert way.audit(full=False).findings == []
    repaired = revised(1, 0, 4)
    way.land(DERIVED, way.rows(DERIVED, repaired), *repaired)
    # Number 4 is late, and alerting does not ask which revision it is: the alert comes again, with the same id.
    raised = way.alarm(way.alerts(repaired))
    way.taken_in("alerting", DERIVED, *repaired)
    way.land(ALERTS, way.rows(ALERTS, raised), *raised)
    assert way.audit(Hop.DERIVED, Hop.LAKE, Hop.ALERTS, full=False).findings == []

    wrong = [*revised(1, 1, 1), *revised(1, 2, courier_name="United"), *revised(-1, 3)]
    way.land(DERIVED, [*way.rows(DERIVED, wrong), way.rows(DERIVED, wrong)[2]], *wrong)
    assert found(way.audit(Hop.DERIVED, Hop.LAKE, full=False)) == {
        ("doubled", way.at(0, 1)),
        ("changed", way.at(0, 2)),
        ("phantom", way.at(0, 3)),
        ("doubled", way.at(0, wrong[0].offset, DERIVED)),
        ("changed", way.at(0, wrong[0].offset, DERIVED)),  # the second row of it names the second record
        ("doubled", way.at(0, wrong[2].offset, DERIVED)),
    }


def test_faults_between_a_topic_and_its_table_are_found(way: Way) -> None:
    parcels = way.dispatch(12)
    records = way.derive(way.enriched(parcels))
    repeat = way.derive([replace(records[0], offset=-1)])
    rows = way.rows(DERIVED, records)
    lost, doubled, phantom, value, time, left, right, dead = rows[1:9]
    value["unmatched"] = ["vans"]
    time["recorded_at"] += timedelta(milliseconds=1)
    left["record_offset"], right["record_offset"] = right["record_offset"], left["record_offset"]
    made_up = {**phantom, "coordinate": way.at(0, 500), "record_offset": 500}
    beside = {**phantom, "coordinate": way.at(0, 501)}
    way.land(DERIVED, [*[row for row in rows if row not in (lost, dead)], doubled, made_up, beside], *records, *repeat)
    way.set_aside(records[8], by="lake", topic=DERIVED)
    raw = way.rows(RAW, parcels)
    raw[3]["coordinate"] = way.at(0, 4)
    raw[5]["van_id"] = None
    way.land(RAW, raw[1:], *parcels)
    assert found(way.audit(Hop.LAKE)) == {
        ("lost", way.at(0, records[1].offset, DERIVED)),
        ("doubled", way.at(0, records[2].offset, DERIVED)),
        ("changed", way.at(0, records[4].offset, DERIVED)),
        ("changed", way.at(0, records[5].offset, DERIVED)),
        ("changed", way.at(0, records[6].offset, DERIVED)),
        ("changed", way.at(0, records[7].offset, DERIVED)),
        ("phantom", way.at(0, 500, DERIVED)),
        ("phantom", way.at(0, records[3].offset, DERIVED)),
        ("set aside", way.at(0, records[8].offset, DERIVED)),
        ("lost", way.at(0, 0)),
        ("changed", way.at(0, 3)),
        ("changed", way.at(0, 5)),
    }


def test_of_a_record_in_two_partitions_either_may_have_landed_and_of_one_partition_the_first(way: Way) -> None:
    parcels = way.dispatch(3, partition=1)
    records = way.derive(way.enriched(parcels))
    copies = way.derive([replace(each, partition=0, offset=-1) for each in records[:2]])
    again = way.derive([replace(records[2], offset=-1)])
    of_records, of_copies = way.rows(DERIVED, records), way.rows(DERIVED, copies)
    way.land(DERIVED, [of_records[0], of_copies[1], *way.rows(DERIVED, again)], *records, *copies, *again)
    way.land(RAW, way.rows(RAW, parcels), *parcels)
    assert found(way.audit(Hop.LAKE)) == {("changed", way.at(1, records[2].offset, DERIVED))}


def test_faults_between_records_and_alerts_are_found(way: Way) -> None:
    parcels = way.dispatch(6, late_minutes=61)
    parcels += way.dispatch(3, late_minutes=59)
    records = way.derive(way.enriched(parcels))
    alerts = way.alerts(records)
    changed = alerts[1].model_copy(update={"message": "all is well"})
    unasked = way.alerts(records, way.rule(59))[6]
    made_up = alerts[2].model_copy(update={"coordinate": way.at(0, 500)})
    by_nobody = unasked.model_copy(update={"rule_version": way.rule().version})
    way.alarm([changed, alerts[2], *[alerts[3]] * 2, *alerts[4:], made_up, by_nobody, unasked])
    way.taken_in("alerting", DERIVED, *records)
    report = way.audit(Hop.ALERTS)
    assert found(report) == {
        ("lost", way.at(0, records[0].offset, DERIVED)),
        ("changed", way.at(0, records[1].offset, DERIVED)),
        ("phantom", way.at(0, 500)),
        ("phantom", way.at(0, records[6].offset, DERIVED)),
    }
    assert noted(report, "alerts raised again with the same id") == 1
    assert noted(report, "alerts of rule versions that are neither recorded nor in the file, not recomputed") == 1


def test_a_dead_letter_of_alerting_that_was_given_up_excuses_its_alert_and_no_others(way: Way) -> None:
    records = way.derive(way.enriched(way.dispatch(3, late_minutes=61)))
    way.settle(records[0], DERIVED, on=ALERTS, by="alerting")
    way.settle(records[1], DERIVED, on=DERIVED, by="lake")
    way.alarm(way.alerts(records[2:]))
    way.taken_in("alerting", DERIVED, *records)
    assert found(way.audit(Hop.ALERTS)) == {("lost", way.at(0, records[1].offset, DERIVED))}


def test_a_dead_letter_of_alerting_excuses_no_alert_that_its_rules_ask_for(way: Way) -> None:
    records = way.derive(way.enriched(way.dispatch(2, late_minutes=61)))
    way.set_aside(*records, by="alerting", topic=DERIVED, on=ALERTS)
    way.settle(records[1], DERIVED, on=ALERTS, action="redriven", by="alerting")
    way.taken_in("alerting", DERIVED, *records)
    assert found(way.audit(Hop.ALERTS)) == {("set aside", way.at(0, records[0].offset, DERIVED))}


def test_a_redrive_for_lake_excuses_no_alert_of_what_it_sent_again(way: Way) -> None:
    records = way.derive(way.enriched(way.dispatch(4, late_minutes=61)))
    for each in records:
        way.settle(each, DERIVED, on=DERIVED, action="redriven", by="lake")
    way.set_aside(*records[:3], by="alerting", topic=DERIVED, on=ALERTS)
    lost, dead, given_up, _ = again = way.derive(_redriven(*records))
    way.settle(given_up, DERIVED, on=ALERTS, by="alerting")
    way.set_aside(dead, by="alerting", topic=DERIVED, on=ALERTS)
    way.taken_in("alerting", DERIVED, *records, *again)
    report = way.audit(Hop.ALERTS)
    assert found(report) == {
        ("lost", way.at(0, lost.offset, DERIVED)),
        ("set aside", way.at(0, dead.offset, DERIVED)),
        # Of this one alerting had no dead letter.
        ("lost", way.at(0, records[3].offset, DERIVED)),
    }
    assert noted(report, "dead letters") == 1


def test_a_redrive_for_a_pipeline_excuses_no_alert_of_the_raw_record(way: Way) -> None:
    raw = way.catalog.topic(RAW)
    asked = raw.model_copy(update={"consumers": (*raw.consumers, "alerting")})
    way.catalog = replace(way.catalog, topics={**way.catalog.topics, RAW: asked})
    way.settings.rules_file.write_text(RULES.replace(DERIVED, RAW))
    rule = way.rule(topic=RAW)
    parcels = way.dispatch(2, late_minutes=61)
    way.settle(parcels[0], action="redriven")
    again = way.send(RAW, _redriven(parcels[0]))
    way.alarm(
        way.alerts([replace(each, ce_id=way.at(0, each.offset)) for each in (parcels[1], *again)], rule, topic=RAW)
    )
    way.taken_in("alerting", RAW, *parcels, *again)
    assert found(way.audit(Hop.ALERTS)) == {("lost", way.at(0, parcels[0].offset))}


def test_each_record_is_asked_by_the_rules_that_were_in_force_then(way: Way) -> None:
    way.activate(threshold=60, from_offset=2)
    way.activate(threshold=30, from_offset=4)
    parcels = way.dispatch(6, late_minutes=40)
    records = way.derive(way.enriched(parcels))
    way.alarm(way.alerts(records[4:], way.rule(30)))
    way.taken_in("alerting", DERIVED, *records)
    report = way.audit(Hop.ALERTS)
    assert report.findings == []
    assert noted(report, "offsets before the first recorded rules, not asked about") == 2
    way.activate(threshold=30, from_offset=3)
    assert found(way.audit(Hop.ALERTS)) == {("lost", way.at(0, 3, DERIVED))}


def test_rules_told_late_by_a_worker_that_had_lost_the_partition_excuse_no_alert(way: Way) -> None:
    records = way.derive(way.enriched(way.dispatch(2, late_minutes=61)))
    way.activate(threshold=60, from_offset=0, generation=8, second=9)
    way.activate(threshold=90, from_offset=0, generation=7, second=1)
    way.alarm(way.alerts(records[1:]))
    way.taken_in("alerting", DERIVED, *records)
    assert found(way.audit(Hop.ALERTS)) == {("lost", way.at(0, 0, DERIVED))}


def test_rules_about_fields_that_are_gone_are_not_asked_and_the_others_are(way: Way) -> None:
    parcels = way.dispatch(6)
    records = way.derive(way.enriched(parcels))
    of_then = [replace(each, fields={**each.fields, "gate": "C71"}) for each in records]
    gone: list[dict[str, Any]] = [{"group_by": ["gate"]}, {"message": "gate {gate}"}, {"when": "gate == 'C71'"}]
    for others in gone:
        way.alarm(way.alerts(of_then, way.activate(threshold=60, from_offset=0, **others)))
    still = way.activate(threshold=60, from_offset=0, when="!unmatched.exists(name, name == 'vans')")
    way.taken_in("alerting", DERIVED, *records)
    report = way.audit(Hop.ALERTS)
    assert found(report) == {("lost", way.at(0, 4, DERIVED))}
    assert noted(report, "alerts of rules that can't be asked any more, not recomputed") == len(gone)
    way.alarm(way.alerts(records, still))
    assert way.audit(Hop.ALERTS).findings == []


def test_a_recorded_rule_that_is_none_today_is_named_and_the_others_are_asked(way: Way) -> None:
    records = way.derive(way.enriched(way.dispatch(2, late_minutes=61)))
    too_long = way.activate(threshold=60, from_offset=0, when="true && " * 200 + "true")
    event = {
        "topic": way.name(DERIVED),
        "partition": 0,
        "from_offset": 0,
        "activated_at": datetime(2026, 1, 1, tzinfo=UTC),
        "rules_version": "1" * 12,
        "rules": {"of long ago": "{}"},
        "generation": None,
    }
    way.send(ACTIVATIONS, [Sent(0, way.name(DERIVED), event, "1")])
    still = way.activate(threshold=60, from_offset=0)
    alerts = way.alerts(records, still)
    versions = too_long.version, "of long ago"
    way.alarm(
        [
            alerts[0],
            *(alerts[0].model_copy(update={"alert_id": uuid4(), "rule_version": version}) for version in versions),
        ]
    )
    way.taken_in("alerting", DERIVED, *records)
    report = way.audit(Hop.ALERTS)
    assert found(report) == {("lost", way.at(0, 1, DERIVED))}
    assert noted(report, "alerts of rules that can't be asked any more, not recomputed") == 2
    for version in versions:
        text = f"that rule version {version} is not asked about: today it is no rule, or its fields are gone"
        assert noted(report, text) == 2


def test_a_message_that_fails_on_a_value_makes_a_dead_letter_of_its_record_alone(way: Way) -> None:
    parcels = [*way.dispatch(1, late_minutes=2_000_000), *way.dispatch(1, late_minutes=61)]
    records = way.derive(way.enriched(parcels))
    rule = way.activate(threshold=60, from_offset=0, message="{late_minutes:c}")
    way.alarm(way.alerts(records[1:], rule))
    way.taken_in("alerting", DERIVED, *records)
    assert found(way.audit(Hop.ALERTS)) == {("lost", way.at(0, 0, DERIVED))}
    way.set_aside(records[0], by="alerting", topic=DERIVED, on=ALERTS)
    assert way.audit(Hop.ALERTS).findings == []


def test_what_is_no_entry_of_ledger_or_rules_is_counted_and_named(way: Way) -> None:
    parcels = way.dispatch(2)
    records = way.derive(way.enriched(parcels[1:]))
    way.taken_in("dispatches_enriched", RAW, *parcels)
    way.taken_in("alerting", DERIVED, *records)
    for topic in (LEDGER, ACTIVATIONS):
        way.send(topic, [Sent(0, "somebody's", {}, "1", body=b"junk")])
    way.settle(parcels[0])
    way.activate(threshold=60, from_offset=0)
    report = way.audit(Hop.DERIVED, Hop.ALERTS)
    assert (report.findings, noted(report, "purged dead letters")) == ([], 1)
    for topic in (LEDGER, ACTIVATIONS):
        assert noted(report, f"that are no entries, passed over: {way.at(0, 0, topic)}") == 1


def test_a_dimension_version_that_never_was_costs_no_look_of_its_own(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    parcels = way.dispatch(40)
    good = way.enriched(parcels)
    invented = [-1, -(2**63), 2**63 - 1, *range(1000, 1036)]
    way.derive(
        [
            good[0],
            *(
                replace(each, fields={**each.fields, "dimension_versions": {**VERSION_0, "couriers": version}})
                for each, version in zip(good[1:], invented, strict=True)
            ),
        ]
    )
    way.taken_in("dispatches_enriched", RAW, *parcels)
    looks: list[str] = []

    def looked(uri: str, **options: Any) -> DeltaTable:
        looks.append(uri)
        return DeltaTable(uri, **options)

    monkeypatch.setattr("services.audit.sources.dimension_table.DeltaTable", looked)
    assert found(way.audit(Hop.DERIVED)) == {("changed", way.at(0, each.offset)) for each in parcels[1:]}
    assert len(looks) <= 3 * len(VERSION_0)  # the newest, that again, and what is joined


def test_a_row_that_goes_missing_from_what_was_audited_is_noticed_without_reading_it_again(way: Way) -> None:
    derived = way.run(way.dispatch(4))
    assert way.audit().is_clean
    way.land(DERIVED, way.rows(DERIVED, derived[:1]), *derived)
    assert found(way.audit(full=False)) == {("doubled", f"{way.catalog.topic(DERIVED).lake.table}")}  # type: ignore[union-attr]
    assert found(way.audit()) == {("doubled", way.at(0, 0, DERIVED))}


def test_a_derived_record_that_comes_again_after_its_audit_is_found(way: Way) -> None:
    parcels = way.dispatch(4)
    derived = way.run(parcels)
    assert way.audit().is_clean
    repeat = way.derive(derived[1:2])
    way.land(DERIVED, [], *repeat)
    way.taken_in("alerting", DERIVED, *repeat)
    assert found(way.audit(full=False)) == {("doubled", way.at(0, 1))}
    report = way.audit(full=False, at_least_once=True)
    assert (found(report), noted(report, "came again, as at least once allows")) == (set(), 1)


def test_what_comes_again_otherwise_than_before_is_found_where_repeats_are_allowed(way: Way) -> None:
    parcels = way.dispatch(4)
    good = way.enriched(parcels)
    other = replace(good[2], fields={**good[2].fields, "courier_name": "United"})
    derived = way.derive([*good, good[1], other])
    way.taken_in("dispatches_enriched", RAW, *parcels)
    way.taken_in("alerting", DERIVED, *derived)
    report = way.audit(Hop.DERIVED, at_least_once=True)
    assert found(report) == {("changed", way.at(0, 2))}
    assert noted(report, "came again, as at least once allows") == 2


def test_what_a_redrive_sent_again_is_noted_and_compared(way: Way) -> None:
    parcels = way.dispatch(4)
    parcels += way.send(RAW, [replace(parcels[0], key="the same")] * 2)
    records = way.derive(way.enriched(parcels))
    repaired = way.derive([replace(records[0], fields={**records[0].fields, "revision": 1})])
    other = replace(records[1], fields={**records[1].fields, "courier_name": "United"})
    *_, taken, ignored = way.derive(_redriven(*repaired, other, records[4], records[2], records[3]))
    way.set_aside(*records[2:4], by="lake", topic=DERIVED)
    for each in records[2:4]:
        way.settle(each, DERIVED, on=DERIVED, action="redriven", by="lake")
    landed = [*records[:2], *records[4:], *repaired, taken]
    way.land(DERIVED, way.rows(DERIVED, landed), *landed, ignored)
    way.land(RAW, way.rows(RAW, parcels), *parcels)
    way.taken_in("dispatches_enriched", RAW, *parcels)
    report = way.audit(Hop.DERIVED, Hop.LAKE)
    assert found(report) == {("changed", way.at(0, 1)), ("lost", way.at(0, ignored.offset, DERIVED))}
    assert noted(report, "sent again by a redrive") == 5


def test_what_a_redrive_sent_again_after_its_audit_is_no_finding(way: Way) -> None:
    def alarm(*records: Sent) -> None:
        raised = way.alarm(way.alerts(records))
        way.taken_in("alerting", DERIVED, *records)
        way.land(ALERTS, way.rows(ALERTS, raised), *raised)

    parcels = way.dispatch(6)
    records = way.derive(way.enriched(parcels))
    repaired = way.derive([replace(records[0], fields={**records[0].fields, "revision": 1})])
    way.set_aside(records[1], by="lake", topic=DERIVED)
    way.settle(records[1], DERIVED, on=DERIVED, action="redriven", by="lake")
    landed = [records[0], *records[2:], *repaired]
    way.land(RAW, way.rows(RAW, parcels), *parcels)
    way.land(DERIVED, way.rows(DERIVED, landed), *landed)
    way.taken_in("dispatches_enriched", RAW, *parcels)
    alarm(*records, *repaired)
    first = way.audit(full=False)
    assert first.findings == []

    _, _, taken = redriven = way.derive(_redriven(records[4], *repaired, records[1]))
    way.land(DERIVED, way.rows(DERIVED, [taken]), *redriven)
    alarm(*redriven)
    second = way.audit(full=False)
    assert (second.since, found(second), noted(second, "sent again by a redrive")) == (first.cut_at, set(), 3)
    assert way.audit().findings == []


def test_what_a_redrive_sent_again_may_outlive_those_around_it(way: Way) -> None:
    parcels = way.send(RAW, [replace(each, key="the same") for each in way.dispatch(6, timestamp_ms=LONG_AGO)])
    records = way.derive(way.enriched(parcels))
    way.derive(_redriven(records[0]))
    way.taken_in("dispatches_enriched", RAW, *parcels)
    way.forget(RAW, 0, before=parcels[0].offset)
    way.forget(DERIVED, 0, before=3)
    report = way.audit(Hop.DERIVED)
    assert found(report) == set()
    assert noted(report, "whose derived records are deleted by now, not compared") == 2


def _redriven(*records: Sent) -> list[Sent]:
    return [replace(each, redriven_from="parcels.dispatched.enriched.v1.dlq/0/0") for each in records]


@pytest.mark.long
def test_while_records_flow_each_audit_takes_up_where_the_last_one_cut(way: Way) -> None:
    sent = way.dispatch(5)
    way.run(sent)
    enough, turned, rounds = threading.Event(), threading.Condition(), 0

    def flow() -> None:
        nonlocal rounds
        while not enough.is_set():
            parcels = way.dispatch(5)
            sent.extend(parcels)
            way.run(parcels)
            with turned:
                rounds += 1
                turned.notify()

    def audit_and_wait() -> Report:
        """Until a whole round has come after the audit: the one under way at its end may lie in its cut in part."""
        report = way.audit(full=False, wait_seconds=60)
        with turned:
            seen = rounds
            assert turned.wait_for(lambda: rounds >= seen + 2, 120), "waited for two rounds of the flow"
        return report

    with ThreadPoolExecutor(1) as pool:
        flowing = pool.submit(flow)
        try:
            reports = [audit_and_wait() for _ in range(4)]
        finally:
            enough.set()
        flowing.result()
    reports.append(way.audit(full=False))
    assert [report.findings for report in reports] == [[]] * 5
    for hop in ({tally.hop for tally in reports[0].tallies}) - {f"{way.name(ALERTS)} → lake"}:
        compared = [sum(tally.records for tally in report.tallies if tally.hop == hop) for report in reports]
        assert sum(compared) == len(sent), hop
        assert min(compared[1:4]) > 0, hop


def test_what_retention_has_deleted_is_said_and_not_lost(way: Way) -> None:
    parcels = way.dispatch(6)
    way.run(parcels)
    way.forget(RAW, 0, before=5)
    report = way.audit()
    assert report.findings == []
    of_raw = [tally for tally in report.tallies if tally.partition == f"{way.name(RAW)}/0" and "→" in tally.hop]
    assert [(tally.records, tally.notes["offsets deleted by retention before this audit"]) for tally in of_raw] == [
        (1, 5),
        (1, 5),
    ]
    assert [tally.notes["of records that are deleted by now, not compared"] for tally in of_raw] == [5, 5]


def test_a_raw_record_that_outlives_its_derived_one_is_not_lost_either(way: Way) -> None:
    parcels = way.dispatch(6, timestamp_ms=LONG_AGO)
    way.derive(way.enriched([*parcels[:4], parcels[5]]))
    way.taken_in("dispatches_enriched", RAW, *parcels)
    way.forget(DERIVED, 0, before=3)
    report = way.audit(Hop.DERIVED)
    assert found(report) == {("lost", way.at(0, 4))}
    assert noted(report, "whose derived records are deleted by now, not compared") == 3


@pytest.mark.parametrize(("lost", "status", "verdict"), [(0, 0, "clean: "), (1, 1, "1 findings: ")])
def test_the_exit_status_says_whether_something_is_wrong(
    way: Way, lost: int, status: int, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parcels = way.dispatch(3)
    way.derive(way.enriched(parcels[lost:]))
    way.taken_in("dispatches_enriched", RAW, *parcels)
    assert run(way.settings, way.catalog, full=True, as_json=False, wait_seconds=0, hops=[Hop.DERIVED]) == status, (
        capsys.readouterr()
    )
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith(verdict)


def test_brokers_that_do_not_answer_are_no_verdict(
    way: Way, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "_TIMEOUT_SECONDS", 1.0)
    nowhere = way.settings.kafka.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
    settings = way.settings.model_copy(update={"kafka": nowhere})
    assert run(settings, way.catalog, full=True, as_json=False, wait_seconds=0, hops=[Hop.DERIVED]) == 2
    assert "no verdict: the brokers at 127.0.0.1:1 say" in capsys.readouterr().err


def test_no_verdict_while_somebody_lags_behind_the_cut(way: Way) -> None:
    parcels = way.dispatch(4)
    way.taken_in("dispatches_enriched", RAW, *parcels[:2])
    with pytest.raises(
        CouldNotAudit, match=r"consumer group dispatches_enriched has not reached the cut .*/0 at offset 2 of 4"
    ):
        way.audit(Hop.DERIVED)
