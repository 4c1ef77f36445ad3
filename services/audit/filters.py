"""Which raw records a topic holds that has `some` of them, said a second time beside the pipelines' code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from contracts.catalog import Catalog
from contracts.contract_file import NotYaml, bytes_of, load_yaml
from contracts.errors import ContractError
from services.alerting.condition import Condition
from services.audit.errors import CouldNotAudit
from services.audit.shape import Shape


def wanted(condition: Condition, columns: Mapping[str, pa.Array], rows: int) -> npt.NDArray[np.bool_]:
    """For which rows of a raw topic the condition holds."""
    values = {name: columns[name].to_pylist() for name in condition.fields}
    found = (condition.holds({name: values[name][row] for name in condition.fields}) for row in range(rows))
    return np.fromiter(found, np.bool_, rows)


def load_filters(path: Path, catalog: Catalog) -> dict[str, str]:
    """By topic. Raises CouldNotAudit, naming file and topic, if it is not readable, or no filter of a topic that has `some`."""
    try:
        found = TypeAdapter(dict[str, str]).validate_python(load_yaml(bytes_of(path)) or {})
        for name, text in found.items():
            _check(catalog, name, text)
    except NotYaml as error:
        raise CouldNotAudit(f"{path}:{error.line}: {error}") from error
    except (OSError, ContractError) as error:
        raise CouldNotAudit(f"{path}: {error}") from error
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise CouldNotAudit(f"{path}: {'; '.join(problems)}") from error
    return found


def _check(catalog: Catalog, name: str, text: str) -> None:
    derivation = catalog.topic(name).derivation
    if derivation is None or derivation.records != "some":
        raise ContractError(
            f"{name} has no filter: its contract does not say that it holds some records of another topic"
        )
    try:
        fields = Condition(text).fields
    except ValueError as error:
        raise ContractError(f"{name}: {text}: {error}") from error
    raw = next(key for key, topic in catalog.topics.items() if topic.name == derivation.topic)
    if unknown := set(fields) - Shape(catalog.schema(raw)).columns.keys():
        raise ContractError(f"{name}: {derivation.topic} has no field {', '.join(sorted(unknown))}")
