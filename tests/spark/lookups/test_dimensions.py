"""The dimensions as `live` holds them, against the real S3: what a batch pays, and tables that are not whole."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client import REGISTRY
from pydantic import HttpUrl
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from contracts.servers.s3 import s3_client
from spark.lookups.dimensions import Dimension, Dimensions
from spark.runtime.errors import DimensionUnreadable
from spark.runtime.settings import SparkSettings
from tests import sample
from tests.faults.stage.proxy import Proxy
from tests.spark.live_query import Dimensions as Published

NAME = "couriers"


class Place:
    """The table of one dimension, and the one who holds it, by a clock that the test moves."""

    def __init__(self, spark: SparkSession, settings: SparkSettings, published: Published) -> None:
        self._spark, self._settings = spark, settings
        self._bucket, self._published = settings.s3.bucket, published
        self._s3 = s3_client(settings.s3)
        self._contract = published.contracts[NAME]
        self.now = 0.0
        self.holder = self.anew()

    def anew(self) -> Dimensions:
        """As a process that starts holds it: nothing yet."""
        return Dimensions(self._spark, self._settings.s3, [self._contract], clock=lambda: self.now)

    def publish(self, name: str) -> None:
        self._published.publish(NAME, ("UA", name))

    def publish_by_another_contract(self, *rows: tuple[object, ...], **column: object) -> None:
        """`column`: what is otherwise in the last one."""
        *others, last = self._contract.columns
        other = self._contract.model_copy(update={"columns": (*others, last.model_copy(update=column))})
        self._published.contracts[NAME] = other
        self._published.publish(NAME, *rows)
        self._published.contracts[NAME] = self._contract

    def newest(self) -> Dimension:
        return self.holder.newest()[NAME]

    def names(self) -> list[str]:
        """What enrichment gets to see."""
        return [row["name"] for row in self.newest().frame.collect()]

    def objects(self, ending: str = "") -> dict[str, bytes]:
        found = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=f"{self._contract.location}/")["Contents"]
        keys = [each["Key"] for each in found if each["Key"].endswith(ending)]
        return {key: self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read() for key in keys}

    def put(self, objects: dict[str, bytes]) -> None:
        for key, body in objects.items():
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=body)

    def remove(self, objects: dict[str, bytes]) -> None:
        for key in objects:
            self._s3.delete_object(Bucket=self._bucket, Key=key)

    def alarm(self) -> float | None:
        return REGISTRY.get_sample_value("headrace_dimension_unreadable", {"dimension": NAME})


class Frozen(Dimensions):
    """Of a process that stands still once, when it has read a table's rows."""

    def __init__(self, *args: Any, behind_rows: Callable[[], None]) -> None:
        super().__init__(*args)
        self._behind_rows: Callable[[], None] | None = behind_rows

    def _rows(self, uri: str) -> pa.Table:
        found = super()._rows(uri)
        meanwhile, self._behind_rows = self._behind_rows, None
        if meanwhile is not None:
            meanwhile()
        return found


def _cut_short(body: bytes) -> bytes:
    return body[: len(body) // 2]


def _without_keys(body: bytes) -> bytes:
    rows = pq.read_table(pa.BufferReader(body))
    (key,) = sample.catalog().dimension(NAME).key
    keys = pa.nulls(rows.num_rows, rows.schema.field(key).type)
    written = pa.BufferOutputStream()
    pq.write_table(rows.set_column(rows.schema.get_field_index(key), key, keys), written)
    return bytes(written.getvalue())


def test_a_store_that_does_not_answer_is_waited_for_once_and_not_for_each_dimension(
    spark: SparkSession, settings: SparkSettings, dimensions: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark.lookups.dimensions.LOOK_SECONDS", 1)
    now = 0.0
    assert settings.s3.endpoint is not None
    with Proxy(int(settings.s3.endpoint.port or 0)) as proxy:
        theirs = settings.s3.model_copy(update={"endpoint": HttpUrl(f"http://127.0.0.1:{proxy.port}")})
        holder = Dimensions(spark, theirs, list(dimensions.contracts.values()), clock=lambda: now)
        held = holder.newest()
        assert len(held) > 1
        with proxy.slow(60) as hits:
            now += 60
            assert holder.newest() == held
            # The client tries three times, and each try may be on a connection of its own.
            asked = hits.count
            assert 3 <= asked < 3 * len(held)
            assert holder.newest() == held
            assert hits.count == asked


def test_a_store_that_is_silent_while_a_table_is_read_is_waited_for_as_long_as_for_a_look(
    spark: SparkSession, settings: SparkSettings, dimensions: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark.lookups.dimensions.LOOK_SECONDS", 1)
    assert settings.s3.endpoint is not None
    with Proxy(int(settings.s3.endpoint.port or 0)) as proxy, proxy.slow(60):
        theirs = settings.s3.model_copy(update={"endpoint": HttpUrl(f"http://127.0.0.1:{proxy.port}")})
        begun = time.monotonic()
        with pytest.raises(DimensionUnreadable):
            Dimensions(spark, theirs, [dimensions.contracts[NAME]]).newest()
        assert time.monotonic() - begun < 15


@pytest.fixture
def place(spark: SparkSession, settings: SparkSettings, dimensions: Published) -> Place:
    place = Place(spark, settings, dimensions)
    dimensions.publish(NAME, ("UA", "first"))  # version 1
    return place


def test_a_batch_reads_nothing_of_a_dimension_that_has_no_new_version(place: Place) -> None:
    held = place.newest()
    place.remove(place.objects(".parquet"))
    place.now += 3600
    assert place.newest() is held
    assert (held.version, place.names()) == (1, ["first"])


def test_a_new_version_is_read_once(place: Place) -> None:
    assert place.names() == ["first"]
    place.publish("second")
    held = place.newest()
    assert (held.version, place.newest() is held, place.names()) == (2, True, ["second"])


@pytest.mark.parametrize(
    "damage", ["a file is missing", "a file is cut short", "the log's entry is cut short", "a key is null"]
)
def test_a_version_that_is_not_whole_leaves_the_one_before_in_force_until_it_is(place: Place, damage: str) -> None:
    place.newest()
    before = place.objects()
    place.publish("second")
    ending = ".json" if damage.startswith("the log") else ".parquet"
    broken = {key: body for key, body in place.objects(ending).items() if key not in before}
    assert len(broken) == 1
    if damage == "a file is missing":
        place.remove(broken)
    else:
        damaged = _without_keys if damage == "a key is null" else _cut_short
        place.put({key: damaged(body) for key, body in broken.items()})
    with capture_logs() as logs:
        assert [place.names() for place.now in (0, 10, 20)] == [["first"]] * 3
    assert (place.alarm(), [line["log_level"] for line in logs]) == (1, ["error"])
    assert logs[0]["in_force"] == 1
    place.put(broken)
    # Not at each batch, which would pay for it.
    assert place.names() == ["first"]
    place.now += 10
    assert (place.names(), place.newest().version, place.alarm()) == (["second"], 2, 0)


@pytest.mark.parametrize(
    ("rows", "column", "reason"),
    [
        ([("UA", "second"), ("UA", "third")], {}, "2 rows and 1 keys by courier"),
        ([("UA", 2)], {"type": "int"}, "column name as int, and the contract says string"),
        ([("UA", "second")], {"name": "title"}, "no column name"),
    ],
)
def test_a_version_of_another_contract_leaves_the_one_before_in_force_and_is_waited_out_at_the_start(
    place: Place, rows: list[tuple[object, ...]], column: dict[str, object], reason: str
) -> None:
    place.newest()
    place.publish_by_another_contract(*rows, **column)
    with capture_logs() as logs:
        assert place.names() == ["first"]
    assert (place.alarm(), [line["log_level"] for line in logs]) == (1, ["error"])
    with pytest.raises(DimensionUnreadable, match=f"couriers can't be read from .*: version 2 has {reason}.*: run the"):
        place.anew().newest()
    place.publish("fourth")
    place.now += 10
    assert (place.names(), place.alarm()) == (["fourth"], 0)


def test_a_table_that_is_removed_stays_in_force_and_one_made_anew_takes_its_place(place: Place) -> None:
    place.newest()
    place.remove(place.objects())
    place.now += 60
    assert (place.names(), place.alarm()) == (["first"], 1)
    place.publish("anew")
    place.now += 60
    assert (place.names(), place.newest().version, place.alarm()) == (["anew"], 0, 0)


def test_a_table_that_is_made_anew_while_it_is_read_is_read_again(
    place: Place, spark: SparkSession, settings: SparkSettings, dimensions: Published
) -> None:
    def made_anew() -> None:
        dimensions.remove(NAME)
        place.publish("lost")
        place.publish("anew")

    holder = Frozen(spark, settings.s3, [dimensions.contracts[NAME]], behind_rows=made_anew)
    with pytest.raises(DimensionUnreadable, match="version 1 was made anew while it was read"):
        holder.newest()
    assert [row["name"] for row in holder.newest()[NAME].frame.collect()] == ["anew"]


def test_one_that_could_never_be_read_has_no_version_to_go_on_with(place: Place) -> None:
    place.remove(place.objects())
    with pytest.raises(DimensionUnreadable, match="couriers can't be read from s3://.*/couriers: "):
        place.newest()
