"""The dimensions for those who have no Delta reader: a file of JSON lines each, with the columns and types of the contract."""

from __future__ import annotations

import json
from pathlib import Path

from contracts.definitions.catalog import load_catalog
from deploy.local.servers.landing import first_rows
from services.dimensions.parse import parse
from services.dimensions.rejected import Rejected
from tests.bench.peers.programs.task import dimension_file


def write_dimensions(folder: Path) -> None:
    """Write every dimension of the catalog that is made of a file into the folder, from the same source files and by the same rules as it is published."""
    folder.mkdir()
    catalog = load_catalog()
    for contract in catalog.dimensions.values():
        if contract.topic is not None:
            continue
        source = first_rows(catalog, contract)
        assert source is not None, f"{contract.made_of} is not there"
        table = parse(contract, source.read_bytes())
        assert not isinstance(table, Rejected), f"{contract.made_of}: {table}"
        lines = [json.dumps(row) + "\n" for row in table.to_pylist()]
        dimension_file(folder, contract.name).write_text("".join(lines), encoding="utf-8")
