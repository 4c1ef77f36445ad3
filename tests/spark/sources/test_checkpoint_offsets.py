"""What the files of a checkpoint say, on the real S3 server."""

from __future__ import annotations

import re
import uuid

import pytest

from contracts.servers.ranges import OffsetRange
from contracts.servers.s3 import s3_client
from deploy.local.servers.stack import LocalStack
from spark.runtime.errors import PositionsDisagree
from spark.sources.checkpoint_offsets import CheckpointOffsets

pytestmark = pytest.mark.system

_METADATA = '{"batchWatermarkMs":%d,"batchTimestampMs":0,"conf":{}}'
_FIRST, _SECOND = _METADATA % 0, _METADATA % 17


class Written:
    """A checkpoint of two sources, the second of which had no record at first."""

    def __init__(self, stack: LocalStack) -> None:
        s3 = stack.settings().s3
        self._client, self._bucket, self._prefix = s3_client(s3), s3.bucket, f"checkpoints/{uuid.uuid4().hex}"
        self.offsets = CheckpointOffsets(s3, self._prefix)
        self.put("sources/0/0", "0v1", '{"a":{"0":3}}')
        self.put("sources/1/0", "0v1", '{"b":{"0":0}}')
        self.put("offsets/0", "v1", _FIRST, '{"a":{"0":5}}', "-")
        self.put("offsets/1", "v1", _SECOND, '{"a":{"0":9}}', '{"b":{"0":2}}')

    def put(self, path: str, *lines: str) -> None:
        key, body = f"{self._prefix}/run/{path}", "\n".join(lines).encode()
        self._client.put_object(Bucket=self._bucket, Key=key, Body=body)


def test_what_a_batch_reads_goes_from_the_offsets_of_the_one_before_to_its_own(stack: LocalStack) -> None:
    assert Written(stack).offsets.planned("run", 1, ["a", "b"]) == (
        [OffsetRange("a", 0, 5, 9), OffsetRange("b", 0, 0, 2)],
        0,
    )


@pytest.mark.parametrize(
    ("path", "lines", "told"),
    [
        ("offsets/0", ["v1"], "it has 1 lines of 4"),
        ("offsets/0", ["v1", _FIRST, '{"a":{"0":5}}'], "it has 3 lines of 4"),  # and not the first offsets of all
        ("offsets/0", ["v1", "{", '{"a":{"0":5}}', "-"], "its watermark can't be read"),
        ("offsets/0", ["v1", "{}", '{"a":{"0":5}}', "-"], "its watermark can't be read"),
        ("offsets/1", ["v1", _SECOND, '{"a":{"0":9}}'], "it has 3 lines of 4"),
        ("offsets/1", [], "it has 0 lines of 4"),
    ],
)
def test_a_damaged_file_is_told_and_nothing_is_taken_from_another_one(
    path: str, lines: list[str], told: str, stack: LocalStack
) -> None:
    written = Written(stack)
    written.put(path, *lines)
    with pytest.raises(PositionsDisagree, match=f"run/{path} is damaged: {re.escape(told)}"):
        written.offsets.planned("run", 1, ["a", "b"])
