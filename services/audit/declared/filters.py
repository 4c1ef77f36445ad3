"""Which raw records a topic holds that has `some` of them, said a second time beside the pipelines' code."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from contracts.definitions.catalog import Catalog
from contracts.errors import ContractError
from services.alerting.rules.condition import Condition
from services.audit.declared.told_files import load
from services.audit.values.shape import Shape


def wanted(condition: Condition, columns: Mapping[str, pa.Array], rows: int) -> npt.NDArray[np.bool_]:
    """For which rows of a raw topic the condition holds."""
    values = {name: columns[name].to_pylist() for name in condition.fields}
    found = (condition.holds({name: values[name][row] for name in condition.fields}) for row in range(rows))
    return np.fromiter(found, np.bool_, rows)


def check_condition(where: str, text: str, columns: Mapping[str, pa.DataType], source: str) -> None:
    """Raises ContractError, with `where` it stands, if it is no condition on records of `source`, which have these columns."""
    try:
        fields = Condition(text).fields
    except ValueError as error:
        raise ContractError(f"{where}: {text}: {error}") from error
    if unknown := set(fields) - columns.keys():
        raise ContractError(f"{where}: {source} has no field {', '.join(sorted(unknown))}")


def load_filters(path: Path, catalog: Catalog) -> dict[str, str]:
    """By topic. Raises CouldNotAudit, naming file and topic, if it is not readable, or no filter of a topic that has `some`, `many` or `distinct`."""
    return load(path, str, partial(_checked, catalog))


def _checked(catalog: Catalog, name: str, text: str) -> str:
    topic = catalog.topic(name)
    if not (topic.is_filtered or topic.is_distinct):
        raise ContractError(
            f"{name} has no filter: its contract does not say that it is made of some records of another topic, of distinct ones, or many of one"
        )
    raw = next(key for key, each in catalog.topics.items() if each.name == topic.made_of)
    check_condition(name, text, Shape(catalog.schema(raw)).columns, str(topic.made_of))
    return text
