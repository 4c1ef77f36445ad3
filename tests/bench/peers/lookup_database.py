"""The dimensions as tables of a Derby database, which Flink's lookup joins ask; made by Derby's own command line, `ij`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from contracts.definitions.catalog import load_catalog
from contracts.definitions.dimension import DimensionContract
from deploy.errors import ProcessFailed
from deploy.local.downloads.java import java_command
from tests.bench.peers.programs.task import dimension_file

_TYPES = {"string": "VARCHAR(200)", "int": "INT", "double": "DOUBLE"}
_ROWS = 200
"""Of one statement: Derby compiles each into a class."""


def make_lookup_database(path: Path, dimensions: Path, jars: Sequence[str]) -> None:
    """Make the database folder `path` from a folder of JSON lines; raises ProcessFailed with what `ij` said."""
    contracts = [each for each in load_catalog().dimensions.values() if each.source is not None]
    script = "\n".join(line for contract in contracts for line in _statements(contract, dimensions))
    command = [java_command(), "-cp", ":".join(jars), f"-Dderby.stream.error.file={path}.log"]
    finished = subprocess.run(
        [*command, "org.apache.derby.tools.ij"],
        input=f"CONNECT 'jdbc:derby:{path};create=true';\n{script}\nDISCONNECT;\nEXIT;\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode != 0 or "ERROR" in finished.stdout:
        raise ProcessFailed(
            f"the lookup database {path} couldn't be made: {finished.stdout[-2000:]}{finished.stderr[-500:]}"
        )


def _statements(contract: DimensionContract, dimensions: Path) -> Iterator[str]:
    columns = ", ".join(
        f"{column.name} {_TYPES[column.type]}{'' if column.nullable else ' NOT NULL'}" for column in contract.columns
    )
    yield f"CREATE TABLE {contract.name} ({columns}, PRIMARY KEY ({', '.join(contract.key)}));"
    lines = dimension_file(dimensions, contract.name).read_text(encoding="utf-8").splitlines()
    names = [column.name for column in contract.columns]
    rows = [_row(json.loads(line), names) for line in lines]
    for start in range(0, len(rows), _ROWS):
        yield f"INSERT INTO {contract.name} VALUES {', '.join(rows[start : start + _ROWS])};"


def _row(row: Mapping[str, object], names: Iterable[str]) -> str:
    return "(" + ", ".join(_literal(row[name]) for name in names) + ")"


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)
