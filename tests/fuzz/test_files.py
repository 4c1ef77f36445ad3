"""A file, whatever is in it, is taken or refused in words: it ends nobody who reads it, and takes no time or memory out of proportion."""

from __future__ import annotations

import itertools
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.processes.deployable import ROOT
from services.alerting.notifying.receiver import ReceiversError, load_receivers
from services.alerting.rules.rulebook import RulebookError, load_rulebook
from services.dimensions.parse import parse
from services.dimensions.rejected import Rejected
from tests import sample
from tests.fuzz.files import mutations

CATALOG = sample.catalog()
SEED = 1
COUNT = 500
_MOST_MORE = 300 << 20
"""Bytes that all of them together may add to what the process has held at once."""


@pytest.fixture(autouse=True)
def bounded_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < _MOST_MORE


def mutated(whole: bytes) -> Iterator[bytes]:
    return itertools.islice(mutations(whole, SEED), COUNT)


def test_rules(tmp_path: Path) -> None:
    path, refused = tmp_path / "rules.yaml", 0
    for data in mutated(sample.RULES.read_bytes()):
        path.write_bytes(data)
        try:
            load_rulebook(path, CATALOG)
        except RulebookError as error:
            refused += 1
            assert str(path) in str(error)
    assert COUNT / 2 < refused < COUNT


def test_receivers(tmp_path: Path) -> None:
    path, refused = tmp_path / "receivers.yaml", 0
    whole = (ROOT / "services" / "alerting" / "receivers.example.yaml").read_bytes()
    for data in mutated(whole):
        path.write_bytes(data)
        try:
            load_receivers(path)
        except ReceiversError as error:
            refused += 1
            assert str(path) in str(error)
    assert COUNT / 4 < refused < COUNT


@pytest.mark.parametrize(
    "name",
    [
        "topics/parcels.dispatched.v1.yaml",
        "dimensions/vans.yaml",
        "schemas/parcels.dispatched.v1/1.avsc",
        "examples/parcels.dispatched.v1/left_late.json",
    ],
)
def test_contracts(tmp_path: Path, name: str) -> None:
    root, refused = tmp_path / "contracts", 0
    for folder in ("topics", "dimensions", "schemas", "examples"):
        shutil.copytree(sample.CONTRACTS / folder, root / folder)
    for data in itertools.islice(mutated((root / name).read_bytes()), COUNT // 4):
        (root / name).write_bytes(data)
        problems = sample.problems(root)
        refused += bool(problems)
        assert all(problem.file and problem.problem and problem.cure for problem in problems)
    assert COUNT / 12 < refused


@pytest.mark.parametrize("name", ["couriers", "vans"])
def test_dimension_files(name: str) -> None:
    contract, refused = CATALOG.dimension(name), 0
    whole = b"".join((sample.TABLES / contract.made_of).read_bytes().splitlines(keepends=True)[:200])
    for data in itertools.islice(mutated(whole), COUNT // 2):
        found = parse(contract, data)
        refused += isinstance(found, Rejected)
    assert COUNT / 12 < refused
