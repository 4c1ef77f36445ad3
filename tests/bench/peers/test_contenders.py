"""Who takes part, and what their rates are beside each other's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from contracts.definitions.catalog import load_catalog
from deploy.local.downloads.jars import read_lock
from tests.bench.measuring.hop import Hop
from tests.bench.measuring.meter import Usage
from tests.bench.peers.contender import CONTENDERS, ENRICHED, JARS, chosen, target_schema
from tests.bench.peers.dimensions import write_dimensions
from tests.bench.peers.environment import LOCKS, locked_version
from tests.bench.peers.errors import UnknownContender
from tests.bench.peers.programs.task import dimension_file
from tests.bench.peers.ratios import ratios


def a_hop(name: str, seconds: float = 20.0, cpu_seconds: float = 30.0) -> Hop:
    """1,000 rows of 2,000 are out after half the time, when three quarters of the cost are made."""
    samples = [(0.0, 0), (seconds / 2, 1000), (seconds, 2000)]
    used = cpu_seconds + 10.0
    usage = {"it": Usage(cpu_seconds, 100.0), "broker": Usage(10.0, 100.0)}
    return Hop(name, 2000, usage, samples, [0.0, used * 0.75, used])


def test_all_take_part_unless_some_are_named() -> None:
    assert chosen([]) == list(CONTENDERS)
    named = chosen(["quix-at-least-once", "headrace-exactly-once"])
    assert [each.name for each in named] == ["headrace-exactly-once", "quix-at-least-once"]


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UnknownContender, match="nobody is called storm: choose of headrace-exactly-once, "):
        chosen(["flink-exactly-once", "storm"])


def test_nobody_writes_into_the_topic_of_another() -> None:
    peers = [each.target for each in CONTENDERS if not each.mode]
    assert len({*peers, ENRICHED}) == len(peers) + 1


def test_a_cost_is_told_with_and_without_the_start() -> None:
    hop = a_hop("flink-exactly-once", cpu_seconds=30.0)
    assert hop.cpu_seconds_per_million == 20_000
    assert hop.cpu_seconds_per_million_sustained == 10_000


def test_what_is_sustained_begins_with_a_fifth_however_early_rows_are_seen() -> None:
    samples, used = [(0.0, 0), (1.0, 2), (3.0, 500), (8.0, 2000)], [0.0, 5.0, 20.0, 35.0]
    hop = Hop("it", 2000, {"it": Usage(35.0, 100.0)}, samples, used)
    assert (hop.sustained, hop.cpu_seconds_per_million_sustained) == (300, 10_000)


def test_exactly_once_is_set_beside_each_of_the_others() -> None:
    hops = [a_hop("headrace-exactly-once"), a_hop("flink-exactly-once", seconds=40.0, cpu_seconds=70.0)]
    (line,) = ratios(hops)
    assert line.startswith("headrace-exactly-once / flink-exactly-once, ")
    assert "2.00 and 2.00 of its events/s" in line
    assert "0.50 and 0.50 of its CPU-seconds per million" in line


def test_without_exactly_once_there_is_nothing_to_set_beside() -> None:
    assert ratios([a_hop("headrace-at-least-once"), a_hop("flink-exactly-once")]) == []


def test_the_peers_schema_differs_only_in_what_no_peer_writes() -> None:
    theirs, ours = json.loads(target_schema()), json.loads(load_catalog().schema(ENRICHED))
    left_out = [field["name"] for field in ours["fields"] if field not in theirs["fields"]]
    assert left_out == ["unmatched", "dimension_versions", "revision"]
    assert {key: theirs[key] for key in theirs if key != "fields"} == {
        key: ours[key] for key in ours if key != "fields"
    }


def test_the_dimensions_have_the_types_of_their_contracts(tmp_path: Path) -> None:
    folder = tmp_path / "dimensions"
    write_dimensions(folder)
    planes = dimension_file(folder, "planes").read_text(encoding="utf-8").splitlines()
    assert len(planes) == 3322
    assert json.loads(planes[0]) == {
        "tail_number": "N10156",
        "built_year": 2004,
        "type": "Fixed wing multi engine",
        "manufacturer": "EMBRAER",
        "model": "EMB-145XR",
        "engines": 2,
        "seats": 55,
        "engine_type": "Turbo-fan",
    }


@pytest.mark.parametrize("peer", ["flink", "quix"])
def test_every_package_of_a_peer_has_a_checksum_and_no_address(peer: str) -> None:
    lock = (LOCKS / f"{peer}.txt").read_text()
    _, *packages = re.split(r"^(?=\S+==)", lock, flags=re.MULTILINE)
    assert packages
    assert [package for package in packages if "--hash=sha256:" not in package] == []
    assert "://" not in lock


def test_the_versions_that_are_printed_are_those_of_the_locks() -> None:
    assert locked_version("flink", "apache-flink").startswith("2.2.")
    assert locked_version("quix", "quixstreams").startswith("3.28.")
    assert {jar.name.split("-2")[0] for jar in read_lock(JARS)["flink"]} >= {"flink-sql-avro-confluent-registry"}
