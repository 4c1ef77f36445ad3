"""What is kept on a real object store tells a later process how a batch was decoded."""

from __future__ import annotations

import uuid

from spark.records.decoding_log import DecodingLog
from spark.records.schemas import WriterSchemas
from spark.runtime.settings import SparkSettings


def _schemas(*ids: int) -> WriterSchemas:
    return WriterSchemas("a subject", "the reader's", {number: f"written by {number}" for number in ids}, frozenset())


def test_a_batch_is_decoded_as_was_said_last_before_it(settings: SparkSettings) -> None:
    folder = f"trials/{uuid.uuid4()}"
    log = DecodingLog(settings.s3, folder, epoch=3)
    assert log.of(9, _schemas(1)) is None
    log.keep(2, _schemas(1))
    log.keep(10, _schemas(1, 2))
    found = [log.of(batch, _schemas(1, 2, 3)) for batch in (1, 2, 9, 10, 11)]
    assert found == [None, _schemas(1), _schemas(1), _schemas(1, 2), _schemas(1, 2)]


def test_a_predecessor_that_wakes_does_not_change_what_its_successor_said(settings: SparkSettings) -> None:
    folder = f"trials/{uuid.uuid4()}"
    predecessor, successor = (DecodingLog(settings.s3, folder, epoch) for epoch in (9, 10))
    successor.keep(5, _schemas(1, 2))
    predecessor.keep(5, _schemas(1))
    assert [successor.of(batch, _schemas()) for batch in (5, 6)] == [_schemas(1, 2)] * 2
