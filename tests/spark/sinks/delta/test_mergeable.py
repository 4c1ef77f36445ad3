"""Which small files of a partition are made one."""

from __future__ import annotations

import math
import random

from spark.sinks.delta.merged_files import LiveFile
from spark.sinks.delta.upkeep import SMALL_BYTES, mergeable


def files(*sizes: int) -> list[LiveFile]:
    return [LiveFile(str(number), size) for number, size in enumerate(sizes)]


def test_files_of_about_the_same_size_are_and_a_much_larger_one_is_left() -> None:
    found = files(1_000, 10, 11, 9, 30)
    assert mergeable(found, 3) == found[1:]
    assert mergeable(files(1_000, 10, 11, 9), 3) == []
    assert mergeable(files(10, 11), 1) == files(10, 11)
    assert mergeable([], 1) == []


def test_a_row_is_written_again_as_often_as_its_file_grows_and_few_files_are_left() -> None:
    """A week of commits of a slow stream, every ten seconds."""
    chance = random.Random(1)
    for kept in (1, 3):
        sizes, rewritten, most, total = list[int](), 0, 0, 0
        for _ in range(60_480):
            sizes.append(chance.randrange(500, 2_000))
            total += sizes[-1]
            together = mergeable(files(*sizes), kept)
            gone = {int(each.path) for each in together}
            if gone:
                merged = sum(sizes[number] for number in gone)
                rewritten += merged
                sizes = [size for number, size in enumerate(sizes) if number not in gone]
                sizes += [merged] if merged < SMALL_BYTES else []
            most = max(most, len(sizes))
        assert rewritten < total * math.log(SMALL_BYTES / 500, 1.5)
        assert most <= kept + math.log(SMALL_BYTES / 500, 3)
