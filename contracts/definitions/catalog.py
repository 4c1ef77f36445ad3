"""`Catalog`: every contract of a project, read once."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts.definitions.contract_file import Problem, named, problem_at, read_contract
from contracts.definitions.dimension import DimensionContract
from contracts.definitions.topic import TopicContract
from contracts.errors import ContractError

CONTRACTS = Path(__file__).parent.parent
"""The folder that holds `topics/`, `schemas/`, `dimensions/` and `examples/`."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """The topics and dimensions by name, and the schemas of each topic."""

    root: Path
    topics: dict[str, TopicContract]
    dimensions: dict[str, DimensionContract]
    _schemas: dict[str, tuple[str, ...]] = field(repr=False)

    @property
    def by_constant(self) -> dict[str, TopicContract]:
        """The topics by their handles' names in `contracts.topics`."""
        return {topic.constant: topic for topic in self.topics.values()}

    @property
    def unread_topics(self) -> set[str]:
        """Those whose files could not be read."""
        return {path.stem for path in self.root.glob("topics/*.yaml")} - self.topics.keys()

    @property
    def unread_dimensions(self) -> set[str]:
        """Those whose files could not be read."""
        return {path.stem for path in self.root.glob("dimensions/*.yaml")} - self.dimensions.keys()

    def topic_file(self, name: str) -> Path:
        """Where the contract of a topic lies."""
        return self.root / "topics" / f"{name}.yaml"

    def dimension_file(self, name: str) -> Path:
        """Where the contract of a dimension lies."""
        return self.root / "dimensions" / f"{name}.yaml"

    def topic(self, name: str) -> TopicContract:
        """The contract of a topic. Raises ContractError if there is none."""
        if name not in self.topics:
            raise ContractError(f"no contract for topic {name!r}; {instead(name, self.topics)}")
        return self.topics[name]

    def dimension(self, name: str) -> DimensionContract:
        """The contract of a dimension. Raises ContractError if there is none."""
        if name not in self.dimensions:
            raise ContractError(f"no contract for dimension {name!r}; {instead(name, self.dimensions)}")
        return self.dimensions[name]

    def schema(self, topic: str) -> str:
        """The topic's current Avro schema, as JSON text. Raises ContractError if there is no such topic."""
        return self.schemas(topic)[-1]

    def parsed_schema(self, topic: str) -> Any:
        """The topic's current Avro schema as JSON values. Raises ContractError, also if it is no JSON."""
        try:
            return json.loads(self.schema(topic))
        except json.JSONDecodeError as error:
            raise ContractError(f"the schema of {topic} is no JSON ({error}): run headrace contracts check") from None

    def schemas(self, topic: str) -> list[str]:
        """Every version of the topic's Avro schema up to the current one, oldest first, as JSON text."""
        self.topic(topic)
        return list(self._schemas[topic])


def load_catalog(root: Path | None = None) -> Catalog:
    """Read every contract under `root` (default: this package's own).

    Raises ContractError with one line for each file that cannot be read. The rules that go across files are
    `contracts.checks.check`'s.
    """
    catalog, problems = read_catalog(root or CONTRACTS)
    if problems:
        raise ContractError("\n".join(str(problem) for problem in problems))
    return catalog


def read_catalog(root: Path) -> tuple[Catalog, list[Problem]]:
    """What can be read under `root`, and what is wrong with the rest."""
    problems: list[Problem] = []
    topics: dict[str, TopicContract] = {}
    dimensions: dict[str, DimensionContract] = {}
    schemas: dict[str, tuple[str, ...]] = {}
    for path in sorted((root / "topics").glob("*.yaml")):
        topic, found = read_contract(path, TopicContract, root)
        problems += found
        if topic is None:
            continue
        if path.stem != topic.name:
            problems.append(_misnamed(path, root, topic.name))
            continue
        topics[topic.name] = topic
        schemas[topic.name], found = _read_schemas(topic, path, root)
        problems += found
    for path in sorted((root / "dimensions").glob("*.yaml")):
        dimension, found = read_contract(path, DimensionContract, root)
        problems += found
        if dimension is None:
            continue
        if path.stem != dimension.name:
            problems.append(_misnamed(path, root, dimension.name))
            continue
        dimensions[dimension.name] = dimension
    return Catalog(root, topics, dimensions, schemas), problems


def _read_schemas(topic: TopicContract, topic_file: Path, root: Path) -> tuple[tuple[str, ...], list[Problem]]:
    texts: list[str] = []
    problems: list[Problem] = []
    folder = root / "schemas" / topic.schema_folder
    for version in range(1, topic.schema_version + 1):
        path = folder / f"{version}.avsc"
        if path.is_file():
            try:
                text = path.read_text(encoding="utf-8")
                with suppress(json.JSONDecodeError):  # `contracts.checks.check` tells its line
                    json.dumps(json.loads(text), ensure_ascii=False).encode()
                texts.append(text)
            except UnicodeDecodeError as error:
                problems.append(Problem(named(root, path), None, f"not UTF-8: {error.reason}", "mend or restore it"))
            except UnicodeEncodeError:
                half = "half of a character, such as \\ud800, which no generated file can hold"
                problems.append(Problem(named(root, path), None, half, "write the character itself"))
            except RecursionError:
                nested = "too many brackets within each other"
                problems.append(Problem(named(root, path), None, nested, "mend or restore it"))
        else:
            missing = f"schema file {named(root, path)} is missing"
            problems.append(problem_at(root, topic_file, ("schema",), missing, "add or restore it"))
    return tuple(texts), problems


def _misnamed(path: Path, root: Path, name: str) -> Problem:
    return Problem(named(root, path), 1, f"the file has another name than '{name}' in it", f"call it {name}.yaml")


def instead(name: str, known: Iterable[str]) -> str:
    """The one of the `known` names that was meant, or all of them."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"there are: {', '.join(sorted(known))}"
