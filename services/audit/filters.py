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
from services.alerting.evaluate import cel_value, compile_filter
from services.audit.errors import CouldNotAudit
from services.audit.shape import Shape


class Filter:
    """A condition in CEL about the fields of a raw record. One about a null, or that has no answer, does not hold."""

    def __init__(self, text: str) -> None:
        """Raises ValueError if it is not well-formed."""
        self._program = compile_filter(text)
        self.fields: tuple[str, ...] = tuple(self._program.variables())

    def of(self, columns: Mapping[str, pa.Array], rows: int) -> npt.NDArray[np.bool_]:
        """Of which rows it holds."""
        values = [columns[name].to_pylist() for name in self.fields]
        found = (
            (self._holds(row) for row in zip(*values, strict=True))
            if values
            else (self._holds(()) for _ in range(rows))
        )
        return np.fromiter(found, np.bool_, rows)

    def _holds(self, values: tuple[object, ...]) -> bool:
        try:
            answer = self._program.execute({n: cel_value(v) for n, v in zip(self.fields, values, strict=True)})
        # The CEL library raises what its operators feel like.
        except Exception:  # noqa: BLE001
            return False
        return answer is True


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
        fields = Filter(text).fields
    except ValueError as error:
        raise ContractError(f"{name}: {text}: {error}") from error
    if unknown := set(fields) - Shape(catalog.schema(derivation.topic)).columns.keys():
        raise ContractError(f"{name}: {derivation.topic} has no field {', '.join(sorted(unknown))}")
