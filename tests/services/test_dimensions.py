"""The dimensions service against the real object store: what becomes of files that others upload."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from prometheus_client import REGISTRY

from contracts.definitions.catalog import Catalog
from contracts.servers.s3 import s3_client
from contracts.settings import S3Settings
from deploy.local.servers.stack import LocalStack
from services.dimensions.__main__ import Rounds
from services.dimensions.landing import PREFIX, REJECTED_PREFIX, Landing, SourceFile
from services.dimensions.publication import Publications
from services.dimensions.reception import Look, Reception
from tests import sample
from tests.services.test_parse import IN_TIME, a_file, a_van, in_time

pytestmark = pytest.mark.system
ROOT = Path(__file__).parent.parent.parent


class Place:
    """A bucket of its own, with a service that takes in what is uploaded to it."""

    def __init__(self, s3: S3Settings) -> None:
        self.s3 = s3
        self.client = s3_client(s3)
        self.client.create_bucket(Bucket=s3.bucket)
        self.ahead = timedelta(hours=1)
        """Of the object store's clock is the service's."""
        self.reception = self.new_reception()

    def new_reception(self, *, max_file_bytes: int = 1_000_000, catalog: Catalog | None = None) -> Reception:
        return Reception(
            catalog or sample.catalog(),
            Landing(self.s3),
            Publications(self.s3, clock=lambda: time.time() + self.ahead.total_seconds()),
            max_file_bytes=max_file_bytes,
            clock=lambda: datetime.now(UTC) + self.ahead,
        )

    def frozen(self, behind: str, meanwhile: Callable[[], object]) -> Rounds:
        """Another process, see `FrozenLanding`."""
        landing = FrozenLanding(self.s3, behind, meanwhile)
        reception = Reception(sample.catalog(), landing, Publications(self.s3), max_file_bytes=1_000_000)
        return Rounds(reception, poll_seconds=1)

    def upload(self, name: str, body: bytes) -> None:
        self.client.put_object(Bucket=self.s3.bucket, Key=PREFIX + name, Body=body)

    @contextmanager
    def uploading(self, name: str, size: int) -> Iterator[HTTPConnection]:
        """A connection on which a file of this size is put, of which nothing is sent yet."""
        endpoint, asked = self.s3.endpoint, {"Bucket": self.s3.bucket, "Key": PREFIX + name}
        assert endpoint is not None
        connection = HTTPConnection(f"{endpoint.host}:{endpoint.port}")
        url = self.client.generate_presigned_url("put_object", Params=asked)
        connection.putrequest("PUT", url.removeprefix(str(endpoint).rstrip("/")))
        connection.putheader("Content-Length", str(size))
        connection.endheaders()
        try:
            yield connection
        finally:
            connection.close()

    def keys(self, prefix: str) -> list[str]:
        found = self.client.list_objects_v2(Bucket=self.s3.bucket, Prefix=prefix).get("Contents", [])
        return [item["Key"].removeprefix(prefix) for item in found]

    def read(self, key: str) -> bytes:
        return self.client.get_object(Bucket=self.s3.bucket, Key=key)["Body"].read()

    def table(self, name: str = "vans") -> DeltaTable:
        return DeltaTable(f"s3://{self.s3.bucket}/dimensions/{name}", storage_options=self.s3.delta_options())


class FrozenLanding(Landing):
    """Of a process that stands still once, behind its call of `behind`, while `meanwhile` happens."""

    def __init__(self, s3: S3Settings, behind: str, meanwhile: Callable[[], object]) -> None:
        super().__init__(s3)
        self._behind, self._meanwhile = behind, meanwhile

    def read(self, file: SourceFile) -> bytes:
        body = super().read(file)
        self._stand_still("read")
        return body

    def has(self, file: SourceFile) -> bool:
        found = super().has(file)
        self._stand_still("has")
        return found

    def _stand_still(self, behind: str) -> None:
        if behind == self._behind:
            self._behind = "nothing more"
            self._meanwhile()


@pytest.fixture
def place(stack: LocalStack) -> Place:
    return Place(stack.settings().s3.model_copy(update={"bucket": f"dimensions-{uuid4().hex[:8]}"}))


def vans(count: int = 10, *, seats: str = "182") -> bytes:
    return a_file(*(a_van(van_id=f"N{number}", seats=seats) for number in range(count)))


def test_the_tables_of_the_sample_are_published_once(place: Place) -> None:
    for contract in sample.catalog().dimensions.values():
        place.upload(contract.made_of, (sample.TABLES / contract.made_of).read_bytes())

    assert place.reception.look() == Look(published=3, rejected=0)
    assert place.reception.look() == Look(published=0, rejected=0)
    # A restarted service remembers by what the table says.
    assert place.new_reception().look() == Look(published=0, rejected=0)

    counts = {name: place.table(name).count() for name in ("couriers", "depots", "vans")}
    assert counts == {"couriers": 16, "depots": 60, "vans": 250}
    assert place.table().version() == 0
    assert place.table().history()[0]["headrace.source"].endswith("landing/dimensions/vans.csv")


def test_rows_that_hold_for_a_time_are_published_with_it(place: Place) -> None:
    dimensions = {"vans": IN_TIME}
    reception = place.new_reception(catalog=replace(sample.catalog(), dimensions=dimensions))
    rows = ("N1", "2013-01-05T01:00+01:00", "NA"), ("N1", "2013-01-01T00:00Z", "2013-01-04T00:00Z")
    place.upload("vans.csv", in_time(*rows))
    assert reception.look() == Look(published=1, rejected=0)
    found = place.table().to_pyarrow_table().select(["since", "until"]).to_pylist()
    assert found == [
        {"since": datetime(2013, 1, 5, tzinfo=UTC), "until": None},
        {"since": datetime(2013, 1, 1, tzinfo=UTC), "until": datetime(2013, 1, 4, tzinfo=UTC)},
    ]


def test_another_content_is_another_version(place: Place) -> None:
    place.upload("vans.csv", vans(10))
    place.reception.look()
    place.upload("vans.csv", vans(11))

    assert place.reception.look() == Look(published=1, rejected=0)
    assert (place.table().version(), place.table().count()) == (1, 11)


def by_two_columns() -> Catalog:
    catalog = sample.catalog()
    contract = catalog.dimension("vans").model_copy(update={"key": ("van_id", "model")})
    return replace(catalog, dimensions={**catalog.dimensions, "vans": contract})


def test_the_same_file_by_another_process_s_contract_stays_in_force_for_a_minute(place: Place) -> None:
    newer = place.new_reception(catalog=by_two_columns())
    place.upload("vans.csv", vans(10))
    assert newer.look() == Look(published=1, rejected=0)
    # One that still runs by the contract before comes after it, and is stopped.
    assert place.reception.look() == Look(published=1, rejected=0)
    place.ahead = timedelta(seconds=30)
    assert newer.look() == Look(published=0, rejected=0)
    place.ahead = timedelta(seconds=90)
    assert newer.look() == Look(published=1, rejected=0)
    place.ahead = timedelta(0)
    assert newer.look() == Look(published=0, rejected=0)


def test_a_key_of_two_columns_is_another_contract_and_so_another_version(place: Place) -> None:
    place.upload("vans.csv", vans(10))
    place.reception.look()
    reception = place.new_reception(catalog=by_two_columns())
    assert reception.look() == Look(published=1, rejected=0)
    place.upload("vans.csv", vans(10) + b"\n" + a_van(van_id="N3", model="G-319").encode())
    assert reception.look() == Look(published=1, rejected=0)
    assert (place.table().version(), place.table().count()) == (2, 11)
    place.upload("vans.csv", vans(10) + b"\n" + a_van(van_id="N3").encode())
    assert reception.look() == Look(published=0, rejected=1)
    assert place.table().version() == 2


def test_a_file_that_is_deleted_or_comes_again_changes_nothing(place: Place) -> None:
    place.upload("vans.csv", vans(10))
    place.reception.look()
    place.client.delete_object(Bucket=place.s3.bucket, Key=PREFIX + "vans.csv")
    assert place.reception.look() == Look(published=0, rejected=0)
    place.upload("vans.csv", vans(10))
    assert place.new_reception().look() == Look(published=0, rejected=0)
    assert (place.table().version(), place.table().count()) == (0, 10)


@pytest.mark.parametrize(("suffix", "is_restarted"), [("", False), ("", True), (".parquet", True)])
def test_a_table_that_was_lost_is_published_again(place: Place, suffix: str, is_restarted: bool) -> None:
    place.upload("vans.csv", vans(10))
    place.reception.look()
    folder = "dimensions/vans/"
    for key in place.keys(folder):
        if key.endswith(suffix):
            place.client.delete_object(Bucket=place.s3.bucket, Key=folder + key)
    reception = place.new_reception() if is_restarted else place.reception
    assert reception.look() == Look(published=1, rejected=0)
    assert place.table().to_pyarrow_table().num_rows == 10
    assert reception.look() == Look(published=0, rejected=0)


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_table_whose_file_is_gone_or_cut_short_is_published_again_when_its_source_comes_again(
    place: Place, is_gone: bool
) -> None:
    place.upload("vans.csv", vans(10))
    place.reception.look()
    (name,) = [key for key in place.keys("dimensions/vans/") if key.endswith(".parquet")]
    bucket, key = place.s3.bucket, f"dimensions/vans/{name}"
    if is_gone:
        place.client.delete_object(Bucket=bucket, Key=key)
    else:
        place.client.put_object(Bucket=bucket, Key=key, Body=place.read(key)[:-9])
    assert place.reception.look() == Look(published=0, rejected=0)
    time.sleep(1.1)  # an object store's clock may tell seconds only
    place.upload("vans.csv", vans(10))
    assert place.reception.look() == Look(published=1, rejected=0)
    assert place.table().to_pyarrow_table().num_rows == 10


def test_a_table_that_takes_no_such_commit_is_trouble_and_blocks_no_other_one(place: Place) -> None:
    for contract in sample.catalog().dimensions.values():
        place.upload(contract.made_of, (sample.TABLES / contract.made_of).read_bytes())
    rounds = Rounds(place.reception, poll_seconds=1)
    assert rounds.look() is not None
    place.table("couriers").alter.set_table_properties({"delta.appendOnly": "true"})
    for contract in sample.catalog().dimensions.values():
        body = (sample.TABLES / contract.made_of).read_bytes()
        place.upload(contract.made_of, body.rstrip().rpartition(b"\n")[0])
    assert rounds.look() is None
    assert rounds.trouble is not None
    assert [place.table(name).version() for name in ("depots", "vans")] == [1, 1]


def test_a_table_that_can_not_be_read_blocks_no_other_one(place: Place) -> None:
    place.client.put_object(
        Bucket=place.s3.bucket, Key=f"dimensions/couriers/_delta_log/{0:020d}.json", Body=b"no JSON"
    )
    for contract in sample.catalog().dimensions.values():
        place.upload(contract.made_of, (sample.TABLES / contract.made_of).read_bytes())
    rounds = Rounds(place.reception, poll_seconds=1)
    assert rounds.look() is None
    assert rounds.trouble is not None
    assert (place.table("depots").count(), place.table("vans").count()) == (60, 250)


def test_a_table_that_the_object_store_refuses_blocks_no_other_one(place: Place) -> None:
    # A file where the table's folder is to be: the server answers with status 500, and deltalake raises an OSError.
    place.client.put_object(Bucket=place.s3.bucket, Key="dimensions/couriers", Body=b"no folder")
    for contract in sample.catalog().dimensions.values():
        place.upload(contract.made_of, (sample.TABLES / contract.made_of).read_bytes())
    rounds = Rounds(place.reception, poll_seconds=1)
    assert rounds.look() is None
    assert "500" in str(rounds.trouble)
    assert (place.table("depots").count(), place.table("vans").count()) == (60, 250)


def test_a_file_that_is_overtaken_blocks_no_other_one(place: Place) -> None:
    for contract in sample.catalog().dimensions.values():
        place.upload(contract.made_of, (sample.TABLES / contract.made_of).read_bytes())
    body = (sample.TABLES / "couriers.csv").read_bytes()
    rounds = place.frozen("read", lambda: place.upload("couriers.csv", body.rstrip().rpartition(b"\n")[0]))
    assert rounds.look() is None
    assert rounds.trouble is None
    assert (place.table("depots").count(), place.table("vans").count()) == (60, 250)
    assert rounds.look() == Look(published=1, rejected=0)
    assert place.table("couriers").count() == 15


BAD = {
    "a missing column": (vans(10).replace(b"seats", b"chairs"), "MissingColumn"),
    "a wrong type": (vans(10, seats="many"), "WrongType"),
    "a missing value": (vans(10, seats="NA"), "MissingValue"),
    "a key twice": (vans(10) + b"\n" + a_van(van_id="N3").encode(), "DuplicateKey"),
    "nothing": (b"", "Empty"),
    "no rows": (a_file(), "Empty"),
    "too few rows": (vans(8), "Shrunk"),
    "bytes that are no text": (b"PK\x03\x04\xff\xfe", "Unparseable"),
    "half a file": (vans(10)[:-20], "Unparseable"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_set_aside_with_its_reason_and_the_last_good_version_stays(place: Place, name: str) -> None:
    body, reason = BAD[name]
    place.upload("vans.csv", vans(10))
    place.reception.look()
    place.upload("vans.csv", body)
    rejected_before = REGISTRY.get_sample_value("headrace_dimensions_rejected_total", {"reason": reason}) or 0

    assert place.reception.look() == Look(published=0, rejected=1)

    assert place.keys(PREFIX) == []
    aside, reason_file = sorted(place.keys(REJECTED_PREFIX), key=len)
    assert aside.endswith("-vans.csv")
    assert reason_file == f"{aside}.reason.json"
    assert place.read(REJECTED_PREFIX + aside) == body
    said = json.loads(place.read(REJECTED_PREFIX + reason_file))
    assert (said["reason"], said["file"], said["size_bytes"]) == (reason, "landing/dimensions/vans.csv", len(body))
    assert (place.table().version(), place.table().count()) == (0, 10)
    rejected = REGISTRY.get_sample_value("headrace_dimensions_rejected_total", {"reason": reason})
    assert rejected == rejected_before + 1


def test_a_corrected_file_is_published_after_a_bad_one(place: Place) -> None:
    to_be_corrected = ("headrace_dimensions_to_be_corrected", {"dimension": "vans"})
    place.upload("vans.csv", vans(10, seats="many"))
    place.reception.look()
    assert REGISTRY.get_sample_value(*to_be_corrected) == 1
    place.upload("vans.csv", vans(10))

    assert place.reception.look() == Look(published=1, rejected=0)
    assert REGISTRY.get_sample_value(*to_be_corrected) == 0


def test_a_file_may_shrink_up_to_its_limit(place: Place) -> None:
    place.upload("vans.csv", vans(10))
    place.reception.look()
    place.upload("vans.csv", vans(9))

    assert place.reception.look() == Look(published=1, rejected=0)


def test_a_file_of_no_dimension_and_one_that_is_too_large_are_set_aside(place: Place) -> None:
    place.upload("trains.csv", b"number\n1\n")
    place.upload("vans.csv", vans(100))

    assert place.new_reception(max_file_bytes=1_000).look() == Look(published=0, rejected=2)

    reasons = [json.loads(place.read(REJECTED_PREFIX + key)) for key in place.keys(REJECTED_PREFIX) if "reason" in key]
    assert sorted(reason["reason"] for reason in reasons) == ["TooLarge", "UnknownFile"]


def test_an_upload_that_goes_on_is_no_file_yet_and_blocks_no_other_one(place: Place) -> None:
    body = vans()
    with place.uploading("vans.csv", len(body)) as upload:
        upload.send(body[:100])
        deadline = time.monotonic() + 30
        while not place.keys(PREFIX):
            assert time.monotonic() < deadline, "the server lists an upload that goes on"
        place.upload("couriers.csv", (sample.TABLES / "couriers.csv").read_bytes())
        assert place.reception.look() == Look(published=1, rejected=0)
        upload.send(body[100:])
        assert upload.getresponse().status == 200
    assert place.reception.look() == Look(published=1, rejected=0)
    assert place.table().count() == 10


def test_a_file_of_no_dimension_is_left_alone_for_a_minute(place: Place) -> None:
    place.upload("vans.csv.part", vans())
    place.ahead = timedelta(seconds=30)
    assert place.reception.look() == Look(published=0, rejected=0)
    place.ahead = timedelta(seconds=90)
    assert place.reception.look() == Look(published=0, rejected=1)


def test_a_file_whose_name_is_as_long_as_a_key_may_be_is_set_aside_and_blocks_no_other_one(place: Place) -> None:
    names = ["/".join(["a" * 200] * 4) + f"/{number}{'é' * 80}.csv" for number in range(2)]
    for name in names:
        place.upload(name, b"x")
    place.upload("vans.csv", vans())
    assert place.reception.look() == Look(published=1, rejected=2)
    assert place.keys(PREFIX) == ["vans.csv"]
    reasons = [key for key in place.keys(REJECTED_PREFIX) if key.endswith(".reason.json")]
    files = [json.loads(place.read(REJECTED_PREFIX + key))["file"] for key in reasons]
    assert sorted(files) == [PREFIX + name for name in names]
    assert all(place.read(REJECTED_PREFIX + key.removesuffix(".reason.json")) == b"x" for key in reasons)


def test_a_file_that_the_object_store_refuses_to_give_blocks_no_other_one(place: Place) -> None:
    for contract in sample.catalog().dimensions.values():
        place.upload(contract.made_of, (sample.TABLES / contract.made_of).read_bytes())
    # The second of three is another one by the time it is read.
    rounds = place.frozen(behind="read", meanwhile=lambda: place.upload("depots.csv", b"x"))
    assert rounds.look() is None
    assert "PreconditionFailed" in str(rounds.trouble)
    assert (place.table("couriers").count(), place.table("vans").count()) == (16, 250)
    assert rounds.look() == Look(published=0, rejected=1)


@pytest.mark.parametrize("newer", [11, 20])
@pytest.mark.parametrize("versions", [0, 1])
@pytest.mark.parametrize("behind", ["read", "has"])
def test_a_process_that_was_frozen_does_not_publish_its_file_over_a_newer_one(
    place: Place, behind: str, versions: int, newer: int
) -> None:
    for count in range(9, 9 + versions):
        place.upload("vans.csv", vans(count))
        place.reception.look()
    place.upload("vans.csv", vans(10))

    def successor() -> None:
        place.upload("vans.csv", vans(newer))
        assert place.reception.look() == Look(published=1, rejected=0)

    frozen = place.frozen(behind, successor)
    assert frozen.look() is None
    assert (place.table().version(), place.table().count()) == (versions, newer)

    # It has taken nothing that isn't there any more.
    assert frozen.look() == Look(published=0, rejected=0)
    place.upload("vans.csv", vans(newer + 1))
    assert frozen.look() == Look(published=1, rejected=0)
    assert (place.table().version(), place.table().count()) == (versions + 1, newer + 1)
    assert place.keys(REJECTED_PREFIX) == []


def test_an_old_file_that_comes_between_a_newer_one_and_its_like_is_in_force_until_the_next_look(place: Place) -> None:
    place.upload("vans.csv", vans(10))
    place.reception.look()
    place.upload("vans.csv", vans(11))

    def successor() -> None:
        place.upload("vans.csv", vans(10))
        assert place.reception.look() == Look(published=0, rejected=0)

    assert place.frozen("has", successor).look() == Look(published=1, rejected=0)
    assert place.table().count() == 11

    assert place.reception.look() == Look(published=1, rejected=0)
    assert place.reception.look() == Look(published=0, rejected=0)
    assert (place.table().version(), place.table().count()) == (2, 10)


def test_a_file_that_was_removed_while_a_process_was_frozen_is_not_published(place: Place) -> None:
    place.upload("vans.csv", vans(10))
    place.reception.look()
    place.upload("vans.csv", vans(11))
    key = PREFIX + "vans.csv"
    frozen = place.frozen("read", lambda: place.client.delete_object(Bucket=place.s3.bucket, Key=key))

    assert frozen.look() is None
    assert (place.table().version(), place.table().count()) == (0, 10)


def test_a_process_that_was_frozen_while_it_set_a_file_aside_leaves_its_correction_there(place: Place) -> None:
    place.upload("vans.csv", vans(10, seats="many"))
    frozen = place.frozen("has", lambda: place.upload("vans.csv", vans(10)))

    assert frozen.look() is None
    assert frozen.look() == Look(published=1, rejected=0)
    assert place.keys(PREFIX) == ["vans.csv"]


def test_a_correction_that_comes_before_the_bad_file_is_set_aside_is_not_set_aside_in_its_name(place: Place) -> None:
    place.upload("vans.csv", vans(10, seats="many"))
    frozen = place.frozen("read", lambda: place.upload("vans.csv", vans(10)))

    assert frozen.look() is None
    assert place.keys(REJECTED_PREFIX) == []
    assert frozen.look() == Look(published=1, rejected=0)


@dataclass(frozen=True)
class Ended:
    status: int
    log: list[dict[str, object]]


def once(stack: LocalStack, place: Place, **environment: str) -> Ended:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.sample.run", "services.dimensions", "--once"],
        cwd=ROOT,
        env={**os.environ, **stack.settings_env(), "HEADRACE_S3__BUCKET": place.s3.bucket, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Ended(ended.returncode, [json.loads(line) for line in ended.stderr.splitlines() if line.startswith("{")])


def test_once_ends_with_1_when_something_was_set_aside(stack: LocalStack, place: Place) -> None:
    place.upload("vans.csv", vans(10))
    assert once(stack, place).status == 0
    place.upload("vans.csv", b"nonsense")

    ended = once(stack, place)

    assert ended.status == 1
    assert [line["reason"] for line in ended.log if line["level"] == "error"] == ["MissingColumn"]


def test_an_object_store_that_is_away_is_no_bad_file(stack: LocalStack, place: Place) -> None:
    place.upload("vans.csv", vans(10))
    stack.s3.process.stop(grace_seconds=10)
    try:
        rounds = Rounds(place.reception, poll_seconds=1)
        assert rounds.look() is None
        assert rounds.trouble is not None
    finally:
        stack.s3.start()
        stack.s3.wait_healthy()

    assert rounds.look() == Look(published=1, rejected=0)
    assert rounds.trouble is None
    assert place.keys(REJECTED_PREFIX) == []
