"""Each limit follows from the ones before: what one stage lets through fits into the next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contracts.records.dead_letter_headers import CAUSE, REDRIVEN_FROM, Header, dead_letter_headers, stump_headers
from contracts.records.limits import (
    ADDED_BYTES,
    DEAD_LETTER_BYTES,
    DERIVED_BYTES,
    KEPT_BYTES,
    LARGEST_BATCH_BYTES,
    RAW_BYTES,
    batch_limit,
    record_size,
)
from contracts.servers.producer_config import PRODUCER_CONFIG
from tests import sample

LONGEST_TOPIC = "t" * 249
COORDINATE = f"{LONGEST_TOPIC}/2147483647/9223372036854775807"
ASTRAL = "\U0001f6eb" * 5_000


def letter_size(original: list[Header]) -> int:
    """Of the dead letter without value that these headers make, when everything that is added is as long as it gets."""
    return record_size(None, None, dead_letter_headers(original, "t", ASTRAL, "s", ASTRAL, ASTRAL, COORDINATE))


def test_a_raw_record_within_its_limit_leaves_room_for_what_every_stage_adds() -> None:
    catalog = sample.catalog()
    assert catalog.topic("parcels.dispatched.v1").most_record_bytes == RAW_BYTES
    assert catalog.topic("parcels.dispatched.enriched.v1").most_record_bytes == RAW_BYTES + ADDED_BYTES == DERIVED_BYTES
    assert DERIVED_BYTES <= KEPT_BYTES < DEAD_LETTER_BYTES < batch_limit(DEAD_LETTER_BYTES) == LARGEST_BATCH_BYTES
    assert PRODUCER_CONFIG["message.max.bytes"] == LARGEST_BATCH_BYTES
    assert batch_limit(RAW_BYTES) == batch_limit(DERIVED_BYTES) == 1_048_588, "no stranger's batch is refused"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ce_id", "ce_causationid", CAUSE, "é", REDRIVEN_FROM]), st.none() | st.binary(max_size=3)
        ),
        max_size=300,
    )
)
def test_however_a_kept_record_divides_into_headers_its_dead_letter_fits(
    headers: list[tuple[str, bytes | None]],
) -> None:
    own = letter_size([])
    grown = letter_size([*headers]) - own
    assert grown * 20 <= (record_size(None, None, headers) + 400) * 37
    assert own + 400 * 2 < ADDED_BYTES // 2


def test_the_header_that_a_redrive_adds_makes_no_record_too_large_and_hides_nothing() -> None:
    note = (REDRIVEN_FROM, f"{LONGEST_TOPIC}.dlq/0/9223372036854775807")
    assert record_size(b"k", b"v", [note]) == record_size(b"k", b"v", [])
    assert record_size(b"k", b"v", [(REDRIVEN_FROM, b"x" * 2_000)]) > 1_600
    assert record_size(b"k", b"v", [note] * 10) > 9 * 249


def test_a_stump_is_small() -> None:
    assert record_size(None, None, stump_headers(1 << 40, "0" * 64)) < 200
