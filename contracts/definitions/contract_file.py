"""Reading a contract's YAML file into its model, with every problem at its line."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

M = TypeVar("M", bound=BaseModel)

_MOST_BYTES = 1_000_000
_MOST_NODES = 20_000
_DEEPEST = 20
_LONGEST = 10_000
"""Characters of one value: what PyYAML makes of a long one, such as 1:1:1:…, takes time by their square."""
_BITS = 64
_SHOWN = 200
_MOST_PROBLEMS = 100
"""Of one file. Each takes a search for its line and for a word that is like it."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One broken rule: the file (from the project's root), the line if it has one, what is wrong, and what to do."""

    file: str
    line: int | None
    problem: str
    cure: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.problem}: {self.cure}"


class NotYaml(Exception):
    """What is wrong with a file that is not readable as YAML, and on which line (from 1). Shows no value of the file."""

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(f"not readable as YAML: {problem}")
        self.line = line


class _Unreadable(yaml.MarkedYAMLError):
    pass


class _Loader(yaml.CSafeLoader):
    """YAML as usual, but a key that stands twice is an error: the second would silently win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise _Unreadable(problem=f"key '{key.value}' stands twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        # What Python says to 2026-02-30, !!int x or !!bool x: the loader lets it through.
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
            kind = node.tag.rpartition(":")[2]
            raise _Unreadable(problem=f"a value that is no {kind}", problem_mark=node.start_mark) from None
        # Python can't even show one of many thousand bits.
        if isinstance(value, int) and value.bit_length() > _BITS:
            raise _Unreadable(problem=f"a number of more than {_BITS} bits", problem_mark=node.start_mark)
        return value


def bytes_of(path: Path) -> bytes:
    """A YAML file's bytes; of one that `load_yaml` refuses for its size, the first. Raises OSError."""
    with path.open("rb") as stream:
        return stream.read(_MOST_BYTES + 1)


def load_yaml(data: bytes) -> Any:
    """The content of a YAML file. Raises NotYaml, also for what would take much more memory or stack than its size."""
    if len(data) > _MOST_BYTES:
        raise NotYaml(f"it has more than {_MOST_BYTES} bytes", 1)
    try:
        text = data.decode()
        _bound(text)
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        # Of what is never closed, libyaml names the line after the last.
        raise NotYaml(str(error.problem), min(line, max(1, len(data.splitlines())))) from None
    except UnicodeDecodeError as error:
        raise NotYaml("not UTF-8", data.count(b"\n", 0, error.start) + 1) from None
    except yaml.reader.ReaderError as error:
        raise NotYaml(error.reason, data.count(b"\n", 0, error.position) + 1) from None


def _bound(text: str) -> None:
    """Raises _Unreadable before anything is built of the text: PyYAML builds by recursion, in C and in Python."""
    depth = 0
    for nodes, event in enumerate(yaml.parse(text, yaml.CSafeLoader)):
        problem = None
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                problem = f"more than {_DEEPEST} levels within each other"
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            # A few of them stand for more than any memory holds.
            problem = f"an alias, '*{event.anchor}', in place of what it stands for"
        elif isinstance(event, yaml.ScalarEvent) and len(event.value) > _LONGEST:
            problem = f"a value of more than {_LONGEST} characters"
        if nodes > _MOST_NODES:
            problem = f"more than {_MOST_NODES} keys and values"
        if problem is not None:
            raise _Unreadable(problem=problem, problem_mark=event.start_mark)  # type: ignore[arg-type]  # libyaml's own marks


def read_contract(path: Path, model: type[M], root: Path) -> tuple[M | None, list[Problem]]:
    """The file as a `model`, or None and the problems that it has; `root` is the contracts' folder."""
    return as_contract(bytes_of(path), model, named(root, path))


def as_contract(data: bytes, model: type[M], file: str) -> tuple[M | None, list[Problem]]:
    """A file's content as `read_contract` gives it; `file` is what problems call it."""
    try:
        content = load_yaml(data)
    except NotYaml as error:
        return None, [Problem(file, error.line, str(error), "mend the line")]
    tree = yaml.compose(data, yaml.CSafeLoader)
    if not isinstance(content, dict) or tree is None:
        return None, [Problem(file, None, "not a mapping of keys to values", "copy the shape of its neighbours")]
    try:
        return model.model_validate(content), []
    except ValidationError as error:
        details = error.errors(include_url=False)[:_MOST_PROBLEMS]
        return None, [_problem(file, tree, detail, model) for detail in details]


def wrong_parts(error: ValidationError, whole: str = "file") -> list[str]:
    """What a model says of content that does not fit, each with its place; `whole` names all of it."""
    return [f"{'.'.join(map(str, each['loc'])) or whole}: {each['msg']}" for each in error.errors()]


def problem_at(root: Path, path: Path, location: tuple[int | str, ...], problem: str, cure: str) -> Problem:
    """A problem of the YAML file `path`, at the line of the key `location`; `root` is the contracts' folder."""
    line = next(iter(lines_of(path.read_bytes(), [location])), None)
    return Problem(named(root, path), line, problem, cure)


def named(root: Path, path: Path) -> str:
    """How problems name a file: from the folder that holds the contracts, `contracts/topics/….yaml`."""
    return path.relative_to(root.parent).as_posix()


def lines_of(data: bytes, locations: Sequence[tuple[int | str, ...]]) -> list[int]:
    """The lines of keys in a YAML file with these bytes, as `line_of` finds them; none if the file is empty."""
    tree = yaml.compose(data, yaml.CSafeLoader)
    return [line_of(tree, location) for location in locations] if tree else []


def line_of(tree: yaml.Node, location: tuple[int | str, ...]) -> int:
    """The line of the deepest part of `location` that the file has; counted from 1."""
    line = tree.start_mark.line + 1
    for part in location:
        if isinstance(tree, yaml.MappingNode):
            found = [(key, value) for key, value in tree.value if key.value == part]
            if not found:
                continue
            line, tree = found[0][0].start_mark.line + 1, found[0][1]
        elif isinstance(tree, yaml.SequenceNode) and isinstance(part, int) and part < len(tree.value):
            tree = tree.value[part]
            line = tree.start_mark.line + 1
    return line


def _problem(file: str, tree: yaml.Node, detail: ErrorDetails, model: type[BaseModel]) -> Problem:
    location = detail["loc"]
    # A union adds its branch to the location: `lake.Lake.table`, `lake.literal['none']`.
    branches = [part for part in location if isinstance(part, str) and (part[:1].isupper() or "[" in part)]
    key = ".".join(str(part) for part in location if part not in branches)
    line = line_of(tree, location)
    match detail["type"]:
        case "extra_forbidden":
            known = sorted(_keys(model))
            close = difflib.get_close_matches(str(location[-1]), known, n=1)
            cure = f"did you mean '{close[0]}'?" if close else f"remove it, or use one of: {', '.join(known)}"
            return Problem(file, line, f"unknown key '{key}'", cure)
        case "missing":
            return Problem(file, line, f"key '{key}' is missing", f"add '{location[-1]}:'")
        case "value_error" if not location:
            what, _, cure = detail["msg"].removeprefix("Value error, ").partition(": ")
            return Problem(file, None, what, cure)
        case _:
            cure = detail["msg"][:1].lower() + detail["msg"][1:]
            return Problem(file, line, f"'{key}' is {_shown(detail['input'])}", cure)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _keys(model: type[BaseModel]) -> set[str]:
    """Every key that the model or a section of it knows."""
    keys: set[str] = set()
    for name, field in model.model_fields.items():
        keys.add(field.alias or name)
        for part in _sections(field.annotation):
            keys |= _keys(part)
    return keys


def _sections(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for part in getattr(annotation, "__args__", ()) for section in _sections(part)]
