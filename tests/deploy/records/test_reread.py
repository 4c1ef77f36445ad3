"""What records are when they are read with another schema; the text and the Markdown of it."""

from __future__ import annotations

import json
import math
from typing import Any

from contracts.checks.retained import Outcome, Retained
from contracts.records.codec import Codec
from contracts.records.coordinates import Coordinate
from deploy.records.reread import Comparison, Reader, shared_fields
from deploy.records.retained_text import retained_lines, retained_markdown

ID = {"name": "id", "type": "string"}
GATE = {"name": "gate", "type": "string", "default": "A1"}
NUMBER = {"name": "number", "type": ["null", "double"], "default": None}
NEVER_NULL = {"name": "number", "type": "double"}


def schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Assigned", "fields": list(fields)})


def compared(before: str, after: str, *values: bytes | None, writer: str | None = None) -> list[Outcome]:
    """Of records that `writer` (or `before`) wrote, as schema 1."""
    old, new = (Reader(Codec(lambda _: writer or before, reader_schema=text), 900_000) for text in (before, after))
    found = Comparison(old, new, shared_fields(json.loads(before), json.loads(after)))
    for offset, value in enumerate(values):
        found.take(Coordinate("t", 0, offset), b"key", value)
    return list(found.outcomes())


def body(text: str, **fields: Any) -> bytes:
    return Codec(lambda _: text).encode(1, fields)


def test_another_default_changes_the_records_that_have_none() -> None:
    writer = schema(ID)
    after = schema(ID, GATE | {"default": "B2"})
    values = body(writer, id="a"), body(writer, id="b")
    assert compared(schema(ID, GATE), after, *values, writer=writer) == [
        Outcome(what="changed", count=2, coordinate="t/0/0"),
        Outcome(what="field", name="gate", count=2, coordinate="t/0/0", before="A1", after="B2"),
    ]
    with_gate = schema(ID, GATE)
    (same,) = compared(with_gate, after, body(with_gate, id="a", gate="A1"))
    assert (same.what, same.count) == ("same", 1)


def test_a_record_that_the_new_schema_does_not_take_would_be_a_dead_letter() -> None:
    before = schema(ID, NUMBER)
    after = schema(ID, NEVER_NULL)
    values = body(before, id="a", number=1.0), body(before, id="b", number=None), b"junk", None
    found = compared(before, after, *values)
    assert [(each.what, each.name, each.count, each.coordinate) for each in found] == [
        ("same", "", 1, "t/0/0"),
        ("dead letter", "Unresolvable", 1, "t/0/1"),
        ("still a dead letter", "ForeignBody", 1, "t/0/2"),
        ("still a dead letter", "Truncated", 1, "t/0/3"),
    ]


def test_a_record_that_only_the_new_schema_takes_appears() -> None:
    strict, mild = schema(ID, NEVER_NULL), schema(ID, NUMBER)
    (found,) = compared(strict, mild, body(mild, id="a", number=None), writer=mild)
    assert found.what == "appears"


def test_a_renamed_field_is_the_same_one_and_a_new_one_is_no_change() -> None:
    before = schema(ID, GATE)
    after = schema(ID, GATE | {"name": "stand", "aliases": ["gate"]}, NUMBER)
    (found,) = compared(before, after, body(before, id="a", gate="C3"))
    assert found.what == "same"


def test_what_is_not_a_number_is_what_it_was() -> None:
    before = schema(ID, NUMBER)
    (found,) = compared(before, schema(ID, NUMBER, GATE), body(before, id="a", number=math.nan))
    assert found.what == "same"


FOUND = [
    Retained(
        topic="gates.assigned.v1",
        older=70,
        outcomes=(
            Outcome(what="same", count=1200, coordinate="gates.assigned.v1/0/0"),
            Outcome(what="changed", count=1, coordinate="gates.assigned.v1/0/3"),
            Outcome(
                what="field", name="gate", count=1, coordinate="gates.assigned.v1/0/3", before="A|1", after="\x1b[2J"
            ),
        ),
    ),
    Retained(
        topic="gates.named.v1",
        pipeline="gates_named",
        outcomes=(
            Outcome(what="dead letter", name="NullField", count=2, coordinate="gates.assigned.v1/1/1", after="no"),
        ),
    ),
    Retained(topic="gates.far.v1", pipeline="gates_far", problem="it makes no gate: add it"),
]


def test_the_text_says_how_many_and_shows_one_of_each() -> None:
    assert list(retained_lines(FOUND, 600)) == [
        "what the running stack retains, the newest 600 records of each partition:",
        "gates.assigned.v1: 1,201 records decoded with the new schema; 70 older offsets not looked at",
        "  same                     1,200",
        "  changed                      1  in gates.assigned.v1/0/3",
        '    gate                       1  "A|1" → "\\u001b[2J" in gates.assigned.v1/0/3',
        "gates_named → gates.named.v1: 2 records made anew",
        "  dead letter                  2  NullField: no in gates.assigned.v1/1/1",
        "gates_far → gates.far.v1: it makes no gate: add it",
    ]


def test_the_markdown_keeps_its_cells_apart() -> None:
    rows = list(retained_markdown(FOUND, 600))[4:]
    assert (
        rows[0]
        == "| `gates.assigned.v1` | 1,201 records decoded with the new schema; 70 older offsets not looked at |  |  |"
    )
    # Code, which is no mention, link or markup.
    assert rows[3].startswith('|  | field `gate` | 1 | `"A\\|1"` → ')
    assert rows[5].startswith("|  | **dead letter** | 2 | NullField: `no")


def test_where_nothing_is_to_be_looked_at_it_is_said() -> None:
    said = "no topic and no pipeline has changed that is there already"
    assert said in list(retained_lines([], 600))
    assert f"{said[0].upper()}{said[1:]}." in list(retained_markdown([], 600))


def test_personal_data_are_counted_and_not_shown() -> None:
    hidden = FOUND[0].without_values(["gate"])
    assert [each.before for each in hidden.outcomes] == [None, None, "(personal data)"]
    assert hidden.records == FOUND[0].records
    assert FOUND[0].without_values(["id"]) == FOUND[0]
    # An error may tell a value of any field.
    letters = [each for each in FOUND[1].without_values(["id"]).outcomes if each.what == "dead letter"]
    assert {each.after for each in letters} == {"(personal data)"}
