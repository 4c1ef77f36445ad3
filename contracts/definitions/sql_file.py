"""`SqlFile`: what a pipeline's SQL file says: a header in a comment, and one SELECT."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationInfo, field_validator

from contracts.definitions.branches import fault_of_branches, targets_of
from contracts.definitions.contract_file import Problem, as_contract, lines_of
from contracts.definitions.lookup import Lookup
from contracts.definitions.topic import FieldName, TopicName

Output = Literal["update", "append"]
"""When an aggregate is written: each time that it has changed, or once, when nothing can change it any more."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_HEADER = re.compile(r"(?:\s|--[^\n]*\n)*/\*(?!\+)(.*?)\*/", re.DOTALL)
_NOT_CODE = re.compile(
    r"""--[^\n]* | /\*.*?\*/ | \br'[^']*' | \br"[^"]*" | '(?:\\.|[^'\\])*' | "(?:\\.|[^"\\])*" | `[^`]*`""",
    re.DOTALL | re.VERBOSE | re.IGNORECASE,
)
"""Comments, texts and quoted names."""
_EMPTY = "/* reads: {events: TOPIC}, writes: TOPIC */"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SqlLookup(_Section):
    """A `Lookup`, in YAML."""

    name: str
    dimension: FieldName
    by: FieldName | tuple[FieldName, ...]
    fields: Mapping[FieldName, FieldName] = Field(min_length=1)
    as_of: FieldName | None = None

    @property
    def lookup(self) -> Lookup:
        """As a function's pipeline has it."""
        return Lookup(self.name, self.dimension, self.by, self.fields, self.as_of)


def _kind(writes: object) -> str:
    return "Branches" if isinstance(writes, Mapping) else "Topic"


_Written = Annotated[
    Annotated[TopicName, Tag("Topic")] | Annotated[Mapping[str, TopicName], Tag("Branches")], Discriminator(_kind)
]
"""Told apart at once: a problem is one of the kind that was meant."""


class SqlHeader(_Section):
    """What `@pipeline` says of a function. `reads` has the topic by the name of the table that the SELECT is of, or the two that it joins;
    `writes` is one topic, or several by the values of the column `branch`.
    """

    reads: Mapping[FieldName, TopicName] = Field(min_length=1, max_length=2)
    writes: _Written
    lookups: tuple[SqlLookup, ...] = ()
    output: Output = "update"

    @field_validator("writes")
    @classmethod
    def _has_branches(cls, writes: str | Mapping[str, str], info: ValidationInfo) -> str | Mapping[str, str]:
        sources = len(info.data.get("reads", ()))
        if not isinstance(writes, str) and (fault := fault_of_branches(list(writes.items()), sources)):
            raise ValueError(fault)
        return writes

    @property
    def targets(self) -> tuple[str, ...]:
        """All topics that it writes."""
        return targets_of(self.writes)


@dataclass(frozen=True, slots=True)
class SqlFile:
    """A header, the line that it begins on and those of its lookups, and the whole text: its comments are SQL's, so lines are those of the file."""

    file: str
    header: SqlHeader
    line: int
    lookup_lines: tuple[int, ...]
    text: str


def read_sql_file(path: Path) -> tuple[SqlFile | None, list[Problem]]:
    """The file, or None and what is wrong with it. The statement's own names and functions are looked at by Spark, when it has them."""
    file = f"{path.parent.parent.name}/{path.parent.name}/{path.name}"
    if path.with_suffix(".py").is_file():
        return None, [Problem(file, 1, f"there is {path.stem}.py, too", "give one of them another name")]
    if not _NAME.fullmatch(path.stem):
        cure = "name it in lower case, digits and _, as the pipeline is to be called"
        return None, [Problem(file, 1, f"{path.stem} is no pipeline's name", cure)]
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        return None, [Problem(file, 1, f"not UTF-8 at byte {error.start}", "save it as UTF-8")]
    found = _HEADER.match(text)
    if found is None:
        cure = f"begin with a comment in YAML: {_EMPTY}"
        return None, [Problem(file, 1, "the file has no header that says what it reads and writes", cure)]
    # Empty lines in place of what stands before: so the lines of problems are the file's.
    line = _line(text, found.start(1))
    yaml = b"\n" * (line - 1) + found[1].encode()
    header, problems = as_contract(yaml, SqlHeader, file)
    problems += _statement_faults(file, text, found.end())
    if header is None or problems:
        return None, problems
    lines = tuple(lines_of(yaml, [("lookups", number) for number in range(len(header.lookups))]))
    return SqlFile(file, header, line, lines, text), []


def _statement_faults(file: str, text: str, begin: int) -> list[Problem]:
    code = _NOT_CODE.sub(lambda quoted: re.sub(r"[^\n]", " ", quoted[0]), text[begin:])
    statement, _, rest = code.partition(";")
    first = re.match(r"\s*([a-z]*)", statement, re.IGNORECASE)
    assert first is not None
    at = _line(text, begin + first.start(1))
    if first[1].upper() not in ("SELECT", "WITH"):
        said = f"{first[1].upper()} is" if first[1] else "what stands below the header is"
        return [Problem(file, at, f"{said} no SELECT", "write one SELECT; it may begin with WITH")]
    if second := re.search(r"[^\s;]", rest):
        at = _line(text, begin + len(statement) + 1 + second.start())
        return [Problem(file, at, "a second statement", "write one SELECT for each file")]
    return []


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
