"""`SourcePartition`, beside one that keeps every offset."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from spark.sinks.kafka.source_partition import SourcePartition


@pytest.mark.parametrize("seed", range(50))
def test_runs_say_what_every_single_offset_would(seed: int) -> None:
    chance = random.Random(seed)
    position, beyond = 3, {5, 6, 9}
    source = SourcePartition(position, [range(5, 7), range(9, 10)])
    for _ in range(200):
        at = position + chance.randrange(-2, 12)
        match chance.randrange(13):
            case 0:
                source.move(at)
                position = max(position, at)
            case 1:
                source.cut(at)
                beyond = {each for each in beyond if each < at}
                position = min(position, at)
            case 2:
                runs = [range(at + 3 * i, at + 3 * i + chance.randrange(1, 6)) for i in range(3)]
                source.take_all(runs)
                beyond |= {offset for run in runs for offset in run if offset >= position}
            case _:
                source.take(at)
                beyond.add(at)
        while position in beyond:
            position += 1
        beyond = {each for each in beyond if each > position}
        assert (source.position, {offset for run in source.beyond() for offset in run}) == (position, beyond)
        assert all(one.stop < next_one.start for one, next_one in pairwise(source.beyond()))
        assert source.has_gap == bool(beyond)
        assert source.end == max(beyond, default=position - 1) + 1
