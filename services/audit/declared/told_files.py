"""The files that say a second time what the pipelines do: `load`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from contracts.definitions.contract_file import NotYaml, bytes_of, load_yaml, wrong_parts
from contracts.errors import ContractError
from services.audit.errors import CouldNotAudit

T = TypeVar("T")
P = TypeVar("P")


def load(path: Path, model: Any, placed: Callable[[str, P], T]) -> dict[str, T]:
    """By topic what `placed` makes of the topic's name and of its part, which is a `model`; that raises ContractError.

    Raises CouldNotAudit, naming file and key, if it is not readable.
    """
    try:
        content = TypeAdapter(dict[str, model]).validate_python(load_yaml(bytes_of(path)) or {})
        return {topic: placed(topic, part) for topic, part in content.items()}
    except NotYaml as error:
        raise CouldNotAudit(f"{path}:{error.line}: {error}") from error
    except (OSError, ContractError) as error:
        raise CouldNotAudit(f"{path}: {error}") from error
    except ValidationError as error:
        raise CouldNotAudit(f"{path}: {'; '.join(wrong_parts(error))}") from error
