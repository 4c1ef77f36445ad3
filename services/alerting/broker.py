"""faust's Kafka transport, reading only what is committed.

faust reads uncommitted records unless its processing guarantee is exactly-once, which would put transactions around
everything that it does. So its consumer is made here, with the arguments that faust would give it (faust-streaming
0.15.3, transport/drivers/aiokafka.py, `_create_worker_consumer`) and the isolation level that we need.
"""

from __future__ import annotations

import ssl
from typing import Any, ClassVar, cast

import aiokafka
import faust
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from faust.types.auth import CredentialsT
from yarl import URL

from contracts.settings import KafkaSettings


class ConsumerThread(driver.AIOKafkaConsumerThread):
    """Reads in a thread of its own, so heartbeats go on while an agent computes."""

    def _create_worker_consumer(self, transport: driver.Transport) -> aiokafka.AIOKafkaConsumer:
        conf = self.app.conf
        # faust asks it for its metadata when it starts.
        self._assignor = RoundRobinPartitionAssignor
        return aiokafka.AIOKafkaConsumer(
            client_id=conf.broker_client_id,
            group_id=conf.id,
            bootstrap_servers=driver.server_list(transport.url, transport.default_port),
            partition_assignment_strategy=[RoundRobinPartitionAssignor],
            enable_auto_commit=False,
            auto_offset_reset=conf.consumer_auto_offset_reset,
            max_poll_records=conf.broker_max_poll_records,
            max_poll_interval_ms=int(conf.broker_max_poll_interval * 1000),
            max_partition_fetch_bytes=conf.consumer_max_fetch_size,
            request_timeout_ms=int(conf.broker_request_timeout * 1000),
            session_timeout_ms=int(conf.broker_session_timeout * 1000),
            rebalance_timeout_ms=int(conf.broker_rebalance_timeout * 1000),
            heartbeat_interval_ms=int(conf.broker_heartbeat_interval * 1000),
            isolation_level="read_committed",
            metadata_max_age_ms=conf.consumer_metadata_max_age_ms,
            **driver.credentials_to_aiokafka_auth(conf.broker_credentials, conf.ssl_context),
        )


class Consumer(driver.Consumer):
    """Commits what was acknowledged. Relies on acknowledgements in order within a partition, which `Window` gives.

    faust looks for gaps between acknowledged offsets instead. A transaction's end marker is an offset without a record,
    so it keeps a tree of such gaps that only grows, and stops committing for good when one follows offset 0.
    """

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    def _new_offset(self, tp: TP) -> int | None:
        acked = self._acked[tp]
        if not acked:
            return None
        position = max(acked) + 1
        acked.clear()
        self._acked_index[tp].clear()
        return position

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Gaps don't matter to `_new_offset`."""


class ReadCommitted(driver.Transport):
    """A transport for `app.transport`."""

    Consumer: ClassVar[type[Consumer]] = Consumer


def broker_urls(kafka: KafkaSettings) -> list[URL]:
    """The bootstrap servers as faust takes them."""
    return [URL(f"kafka://{server.strip()}") for server in kafka.bootstrap_servers.split(",")]


def credentials(kafka: KafkaSettings) -> CredentialsT | None:
    """How to authenticate, as faust takes it; None for a plain connection."""
    context: ssl.SSLContext | None = None
    if kafka.security_protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=kafka.ssl_ca_file)
    if kafka.security_protocol.startswith("SASL"):
        password = kafka.sasl_password.get_secret_value() if kafka.sasl_password is not None else None
        arguments: dict[str, Any] = {
            "mechanism": kafka.sasl_mechanism,
            "username": kafka.sasl_username,
            "password": password,
            "ssl_context": context,
        }
        return cast(CredentialsT, faust.SASLCredentials(**arguments))
    return None if context is None else cast(CredentialsT, faust.SSLCredentials(context))
