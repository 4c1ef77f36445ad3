"""What tasks have to say comes whole to the driver, or fails: PySpark reads it from a socket that may close at any byte."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from pyspark.serializers import Serializer
from pyspark.sql import SparkSession
from pyspark.sql.pandas import conversion
from pyspark.sql.pandas.serializers import ArrowCollectSerializer

from deploy.local.processes.deployable import ROOT

ROWS = 5_500


def read(sent: bytes) -> list[Any]:
    """The batches, and the order that they have."""
    serializer: Any = ArrowCollectSerializer
    return list(serializer().load_stream(io.BytesIO(sent)))


def test_a_result_that_is_cut_at_any_byte_is_an_error(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = sent_to_arrow(spark, monkeypatch)
    *batches, order = read(sent)
    assert (sum(batch.num_rows for batch in batches), len(order)) == (ROWS, len(batches))
    assert len(batches) > 1
    for length in {*range(0, len(sent), 997), *range(len(sent) - 100, len(sent))}:
        with pytest.raises(Exception):  # noqa: B017  Arrow has one error, PySpark another
            read(sent[:length])


def sent_to_arrow(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The bytes that the JVM sends for `toArrow`."""
    kept = io.BytesIO()
    load: Any = vars(conversion)["_load_from_socket"]

    class Keeping(Serializer):
        def load_stream(self, stream: Any) -> Any:
            kept.write(stream.read())
            return read(kept.getvalue())

    with monkeypatch.context() as patched:
        patched.setattr(conversion, "_load_from_socket", lambda info, _: load(info, Keeping()))
        assert spark.range(0, ROWS, 1, 2).toArrow().num_rows == ROWS
    return kept.getvalue()


def test_no_result_comes_in_another_way() -> None:
    # `collect` and its like end without an error where the bytes end. Over the gateway, as `Prepared` has it, a call fails.
    taking = re.compile(r"\.(collect|first)\(\)|\.(toLocalIterator|toPandas|head|tail)\(|\.take\(\d")
    found = [str(file.relative_to(ROOT)) for file in (ROOT / "spark").rglob("*.py") if taking.search(file.read_text())]
    assert sorted(found) == [
        "spark/runtime/internals/prepared.py",
        "spark/runtime/workers/python_daemon.py",
    ]  # Python's garbage
