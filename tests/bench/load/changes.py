"""What changes while a load lasts: two new versions of a dimension, and one of the raw records' schema.

`python -m tests.bench.load.changes SECONDS`, beside `tests.bench.load.pace`, whose records have the new schema from `renewed_at` on,
half a minute after the registry has it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager

from deltalake import DeltaTable, write_deltalake

from contracts.definitions.catalog import load_catalog
from contracts.servers.registry import Registry
from contracts.settings import Settings, read_settings
from tests.bench.load.records import DIMENSION, RAW
from tests.bench.load.started import started

_PUBLISHED_AT = (0.3, 0.5)
_REGISTERED_AT = 0.7
_AHEAD_SECONDS = 30.0
"""As docs/modes.md asks for."""


def renewed_at(seconds: float) -> float:
    """The second of the load from which on its records have the new schema."""
    return _REGISTERED_AT * seconds + _AHEAD_SECONDS


def start(seconds: float, env: Mapping[str, str]) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """The changes of a load of so many seconds as a process; `env`: where the stack is. Raises as `started`."""
    command = [sys.executable, "-m", "tests.bench.load.changes", str(seconds)]
    return started("the process with the changes", command, env)


def renewed_schema() -> str:
    """The raw records' schema with one more field, as JSON text."""
    schema = json.loads(load_catalog().schema(RAW))
    schema["fields"].append({"name": "noted", "type": ["null", "string"], "default": None})
    return json.dumps(schema)


def renewed(value: bytes, schema_id: int) -> bytes:
    """A record as it is by `renewed_schema`."""
    # The new field is the last one, and null: 0, the first branch of its union.
    return b"\x00" + schema_id.to_bytes(4, "big") + value[5:] + b"\x00"


def main(seconds: float) -> None:
    """Change, one after the other."""
    settings, began = read_settings(Settings), time.monotonic()
    location = load_catalog().dimension(DIMENSION).location
    for share in _PUBLISHED_AT:
        _sleep_until(began + share * seconds)
        table = DeltaTable(f"s3://{settings.s3.bucket}/{location}", storage_options=settings.s3.delta_options())
        write_deltalake(table, table.to_pyarrow_table(), mode="overwrite")
    _sleep_until(began + _REGISTERED_AT * seconds)
    with Registry(settings.registry) as registry:
        registry.register(f"{RAW}-value", renewed_schema())


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


if __name__ == "__main__":
    main(float(sys.argv[1]))
