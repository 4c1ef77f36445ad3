"""What the brokers say of groups, also while they have just begun."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.local.servers.stack import LocalStack

_ASK = """
import sys
from services.audit.sources.broker import Broker
broker = Broker({"bootstrap.servers": sys.argv[1]})
print(sum(len(broker.taken_in(f"group-{number}", "trial")) for number in range(20)))
"""


@pytest.mark.system
def test_who_asks_for_groups_lives_on_though_their_coordinator_has_just_begun(tmp_path: Path) -> None:
    """librdkafka's admin client ended the process by a segmentation fault, two times of five."""
    stack = LocalStack(tmp_path)
    try:
        stack.kafka.start()
        servers = stack.kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("trial", 1, 1)])["trial"].result()
        done = subprocess.run([sys.executable, "-c", _ASK, servers], capture_output=True, text=True, check=False)
    finally:
        stack.stop()
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr[-2_000:]
