"""Nothing that somebody else wrote is obeyed by a terminal, and whatever it is, it is shown."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from contracts.dead_letters.decoded import Decoded
from deploy.dead_letter_text import letter_json, letter_lines, page_lines, readable
from tests.dead_letters.letters import a_letter, a_stump

ESCAPE = "\x1b]0;owned\x07\u202e\r\n"


def test_control_characters_are_escaped_wherever_they_stand() -> None:
    letter = a_letter(
        original=[(ESCAPE, ESCAPE.encode())],
        reason=ESCAPE,
        error=ESCAPE,
        key=ESCAPE.encode(),
        redriven_from=ESCAPE,
        coordinate=f"{ESCAPE}/0/1",
    )
    for decoded in (Decoded(fields={"name": ESCAPE}), Decoded(text=ESCAPE), Decoded(problem=ESCAPE)):
        for line in (*letter_lines(letter, "open", decoded), *page_lines(letter, "open", decoded)):
            assert line.isprintable(), line


def test_of_a_stump_is_said_what_it_is() -> None:
    letter, nothing = a_stump(), Decoded(problem="there is no value")
    told = (
        f"too large to keep: 20000000 bytes, which only parcels.dispatched.v1/1/42 has; SHA-256 of the value {'5' * 64}"
    )
    assert f"stump        {told}" in page_lines(letter, "open", nothing)
    assert f"    {told}" in letter_lines(letter, "open", nothing)
    assert letter_json(letter, "open", nothing)["stump_bytes"] == 20_000_000


@given(st.none() | st.binary())
def test_any_bytes_are_readable(data: bytes | None) -> None:
    assert readable(data).isprintable()


@given(st.lists(st.tuples(st.text(), st.none() | st.binary())), st.none() | st.binary())
def test_any_letter_is_json(headers: list[tuple[str, bytes | None]], value: bytes | None) -> None:
    letter = a_letter(original=headers, value=value, key=value)
    text = json.dumps(letter_json(letter, "open", Decoded()))
    assert text.isprintable()
    assert json.loads(text)["value_hex"] == (None if value is None else value.hex())
    assert all(line.isprintable() for line in page_lines(letter, "open", Decoded()))
