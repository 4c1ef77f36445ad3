"""`headrace dimensions`: a source file is checked, uploaded, and what becomes of it is told."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from uuid import uuid4

import pytest

from contracts.servers.s3 import s3_client
from contracts.settings import S3Settings
from deploy.dimensions import Upload, as_json, in_force, lines, read_source
from deploy.errors import DeployError
from deploy.local.servers.stack import LocalStack
from services.dimensions.landing import Landing
from services.dimensions.publication import Publications, fingerprint_of
from services.dimensions.reception import Reception
from tests import sample
from tests.services.test_dimensions import vans
from tests.services.test_parse import a_file, a_van

CATALOG = sample.catalog()


def a_source(folder: Path, body: bytes, name: str = "vans.csv") -> Path:
    path = folder / name
    path.write_bytes(body)
    return path


def test_a_file_is_checked_without_a_stack(tmp_path: Path) -> None:
    source = read_source(a_source(tmp_path, vans(3)), CATALOG, None)
    assert (source.contract.name, source.rows) == ("vans", 3)
    other = read_source(a_source(tmp_path, vans(3), "new.csv"), CATALOG, "vans")
    assert (other.contract.name, other.rows) == ("vans", 3)


@pytest.mark.parametrize(
    ("name", "body", "told"),
    [
        ("vans.csv", a_file(a_van(seats="many")), "vans.csv: WrongType: line 2, column 'seats': 'many' is no int"),
        ("vans.csv", a_file(a_van(), a_van()), "DuplicateKey: lines 2 and 3 have the same key: N1"),
        ("vans.csv", b"x" * (16 * 1024 * 1024 + 1), "has more than 16,777,216 bytes"),
        ("vns.csv", vans(1), "no dimension has the source vns.csv: name the dimension by --dimension, one of couriers"),
    ],
)
def test_what_would_be_set_aside_is_told_at_once(tmp_path: Path, name: str, body: bytes, told: str) -> None:
    with pytest.raises(DeployError, match=told):
        read_source(a_source(tmp_path, body, name), CATALOG, None)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match=r"vans\.csv can't be read: No such file"):
        read_source(tmp_path / "vans.csv", CATALOG, None)
    with pytest.raises(DeployError, match="can't be read: Is a directory"):
        read_source(tmp_path, CATALOG, "vans")


def test_what_a_contract_does_not_say_changes_no_fingerprint() -> None:
    """Else each dimension would have a new version for each key that contracts learn."""
    assert fingerprint_of(CATALOG.dimension("couriers"), b"a") == (
        "89ef1a769172d56ec34087296a1f88801c2ff62a122b407961d6c1d2c8a5a945"
    )


@pytest.fixture
def s3(stack: LocalStack) -> S3Settings:
    s3 = stack.settings().s3.model_copy(update={"bucket": f"put-{uuid4().hex[:8]}"})
    s3_client(s3).create_bucket(Bucket=s3.bucket)
    return s3


@pytest.fixture
def reception(s3: S3Settings) -> Reception:
    return Reception(CATALOG, Landing(s3), Publications(s3), max_file_bytes=1_000_000)


def sent(s3: S3Settings, folder: Path, body: bytes) -> Upload:
    upload = Upload(s3, read_source(a_source(folder, body), CATALOG, None))
    assert upload.send() == f"s3://{s3.bucket}/landing/dimensions/vans.csv"
    return upload


@pytest.mark.system
def test_the_version_that_a_file_became_is_told(s3: S3Settings, reception: Reception, tmp_path: Path) -> None:
    first = sent(s3, tmp_path, vans(10))
    with pytest.raises(DeployError, match="dimensions has not taken the file for 0 s"):
        first.outcome(0)
    reception.look()
    assert first.before is None
    assert (first.outcome(5).version, first.outcome(5).rows) == (0, 10)

    second = sent(s3, tmp_path, vans(11))
    reception.look()
    assert (second.outcome(5).version, second.outcome(5).rows) == (1, 11)

    again = sent(s3, tmp_path, vans(11))
    assert again.is_in_force
    changed = dataclasses.replace(
        CATALOG, dimensions={"vans": CATALOG.dimension("vans").model_copy(update={"owner": "x"})}
    )
    by_another = Upload(s3, read_source(tmp_path / "vans.csv", changed, None))
    assert not by_another.is_in_force
    by_another.send()
    with pytest.raises(DeployError, match="version 1 was made of the same file by another contract, and no other came"):
        by_another.outcome(0)
    replaced = sent(s3, tmp_path, vans(13))
    sent(s3, tmp_path, vans(12))
    with pytest.raises(DeployError, match="the file was replaced or removed before dimensions had taken it"):
        replaced.outcome(0)
    assert not Upload(s3, read_source(a_source(tmp_path, vans(12)), CATALOG, None)).is_in_force


@pytest.mark.system
def test_a_file_that_is_set_aside_is_told_with_its_reason_each_time(
    s3: S3Settings, reception: Reception, tmp_path: Path
) -> None:
    sent(s3, tmp_path, vans(10))
    reception.look()
    for _ in range(2):
        upload = sent(s3, tmp_path, vans(2))
        with pytest.raises(DeployError, match="has not taken"):
            upload.outcome(0)
        reception.look()
        with pytest.raises(DeployError, match="has set the file aside as Shrunk: 2 rows are more than 10 % fewer than"):
            upload.outcome(5)


@pytest.mark.system
def test_what_is_in_force_is_listed(s3: S3Settings, reception: Reception, tmp_path: Path) -> None:
    sent(s3, tmp_path, vans(1_234))
    reception.look()
    found = in_force(s3, CATALOG)
    heads, couriers, _, of_vans = lines(CATALOG, found)
    assert heads.split()[:4] == ["dimension", "version", "rows", "published"]
    assert couriers.split()[:3] == ["couriers", "none", "couriers.csv"]
    assert of_vans.split()[:3] == ["vans", "0", "1,234"]
    assert of_vans.endswith("dispatches_enriched, deliveries_enriched, repair")
    assert [each["in_force"] and each["in_force"]["rows"] for each in as_json(CATALOG, found)] == [None, None, 1234]


@pytest.mark.system
def test_a_store_that_does_not_answer_is_told(s3: S3Settings, tmp_path: Path) -> None:
    nowhere = s3.model_copy(update={"bucket": "nowhere"})
    with pytest.raises(DeployError, match="the store at http"):
        Upload(nowhere, read_source(a_source(tmp_path, vans(1)), CATALOG, None)).send()
