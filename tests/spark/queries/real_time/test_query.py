"""What a query in real-time mode needs of its session."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark.queries.real_time.query import CHECKPOINT_ON_DISK, check_slots, configured
from spark.runtime.errors import TooFewSlots


def test_a_slot_for_each_partition_is_asked_for(spark: SparkSession) -> None:
    with pytest.raises(TooFewSlots, match=r"t has 3 partitions.*local\[2\] has 2.*HEADRACE_SPARK__MASTER=local\[3\]"):
        check_slots(spark, "local[2]", "t", 3)
    # Its session has four.
    check_slots(spark, "local[*]", "t", 4)
    with pytest.raises(TooFewSlots):
        check_slots(spark, "local[*]", "t", 5)


def test_what_is_configured_for_a_while_is_as_before_afterwards(spark: SparkSession) -> None:
    before = {name: spark.conf.get(name, None) for name in CHECKPOINT_ON_DISK}
    assert before != CHECKPOINT_ON_DISK
    with pytest.raises(TooFewSlots), configured(spark, CHECKPOINT_ON_DISK):
        assert {name: spark.conf.get(name, None) for name in CHECKPOINT_ON_DISK} == CHECKPOINT_ON_DISK
        raise TooFewSlots
    assert {name: spark.conf.get(name, None) for name in CHECKPOINT_ON_DISK} == before
