"""Where a client on this machine finds the topics, as the documents say it."""

from __future__ import annotations

from contracts.settings import KafkaSettings

SERVERS = {
    "up": {
        # Its ports are away from those that other software likes.
        "host": "127.0.0.1:19092",
        "description": "The stack of `./headrace up`; with other ports, as .headrace/env says.",
    },
    "compose": {
        "host": KafkaSettings().bootstrap_servers,
        "description": "The broker of deploy/compose.yaml; elsewhere as HEADRACE_KAFKA__BOOTSTRAP_SERVERS says.",
    },
}
