"""What `live` makes of a record within its limit is within that of the enriched topic; nothing starts where a topic takes less."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from confluent_kafka.admin import AdminClient

from contracts.definitions.catalog import load_catalog
from contracts.records.limits import (
    ADDED_BYTES,
    DEAD_LETTER_BYTES,
    DIMENSION_TEXT_BYTES,
    PASSED_ON_BYTES,
    batch_limit,
    record_size,
)
from deploy.local.processes.deployable import deployables
from deploy.local.servers.stack import LocalStack
from spark.derivation.derivation import route
from spark.pipelines import load
from spark.records.wire import encoding
from tests.administered import limit_batches

ENRICHING = deployables().pipelines
_ANY_FIELD_BYTES = DIMENSION_TEXT_BYTES + 4
"""A text, its length and the branch of its union: longer than any number."""


@pytest.mark.parametrize("name", ENRICHING)
def test_what_live_adds_to_a_record_fits_into_what_a_stage_may_add(name: str) -> None:
    pipeline, catalog = load(name), load_catalog()
    looked_up = sum(len(lookup.fields) for lookup in pipeline.lookups) * _ANY_FIELD_BYTES
    stamp = {
        "unmatched": [lookup.name for lookup in pipeline.lookups],
        "dimension_versions": dict.fromkeys(pipeline.dimensions, 2**63 - 1),
        "revision": 2**31 - 1,
    }
    of = route(pipeline, catalog)
    constant = record_size(None, None, list(of.constant_headers(of.target).items()))
    coordinate = record_size(None, None, [("ce_id", f"{'t' * 249}/2147483647/{2**63 - 1}")])
    renamed = len("ce_causationid") - len("ce_id")
    assert (
        looked_up + len(encoding(catalog.schema(pipeline.target), stamp)) + constant + coordinate + renamed
        < ADDED_BYTES / 2
    )
    assert PASSED_ON_BYTES < ADDED_BYTES / 2


@pytest.mark.parametrize(
    "command",
    [["spark", "run", *ENRICHING], ["spark", "lake"], ["services.alerting"]],
    ids=lambda command: command[-1],
)
def test_a_start_is_refused_where_dead_letters_do_not_fit(stack: LocalStack, command: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap_servers})
    topic = "alerts.raised.v1.dlq" if command == ["services.alerting"] else f"{load(ENRICHING[0]).source}.dlq"
    needs = batch_limit(DEAD_LETTER_BYTES)
    limit_batches(admin, topic, 1_048_588)
    try:
        env = os.environ | stack.settings_env()
        ended = subprocess.run(
            [sys.executable, "-m", *command], env=env, capture_output=True, text=True, timeout=120, check=False
        )
    finally:
        limit_batches(admin, topic, needs)
    assert ended.returncode == 1
    told = f"{topic} takes batches of 1048588 bytes, and needs {needs} by its contract: run `headrace topics create`"
    assert told in ended.stderr
