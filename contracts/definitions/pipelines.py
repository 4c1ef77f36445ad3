"""Which topics the pipelines read and write, by their files: `declared_pipelines`. No file is run, and Spark need not be there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from pydantic import TypeAdapter

from contracts.definitions.branches import fault_of_branches
from contracts.definitions.catalog import instead
from contracts.definitions.contract_file import Problem
from contracts.definitions.lookup import Lookup
from contracts.definitions.sql_file import read_sql_file
from contracts.definitions.topic import constant_of

PIPELINES = Path(__file__).parents[2] / "spark" / "pipelines"
"""One file for each, in Python or SQL; it bears the name of the pipeline."""

LAKE = "lake"
"""No pipeline's name: a pipeline's lease and checkpoint lie in folders of its name, and those of the lake in folders of this one."""

_LOOKUP = TypeAdapter(Lookup)
_OF_LOOKUP = [each.name for each in fields(Lookup)]


@dataclass(frozen=True, slots=True)
class DeclaredPipeline:
    """The decorator of a pipeline's function, or the header of its SQL file. `reads`, `second` and `writes` are constants of `contracts.topics`;
    `second` is the other topic that it reads, if it joins or unites two, `writes` has more than one of a branch. `lookups` has the line of each lookup; it is None where
    they are not written out, but computed: only Spark's own check at the start sees those.
    """

    name: str
    file: str
    line: int
    reads: str
    writes: tuple[str, ...]
    lookups: Mapping[Lookup, int] | None
    second: str | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """All that it reads."""
        return (self.reads,) if self.second is None else (self.reads, self.second)


def pipeline_files(folder: Path = PIPELINES) -> Mapping[str, Path]:
    """The pipelines' files by name, which begins with a letter."""
    paths = sorted(
        (path for path in folder.iterdir() if path.suffix in (".py", ".sql")), key=lambda path: (path.stem, path.suffix)
    )
    return {path.stem: path for path in paths if path.stem[0].isalpha() and path.is_file()}


def declared_pipelines(folder: Path = PIPELINES) -> tuple[list[DeclaredPipeline], list[Problem]]:
    """Every pipeline of the folder, and what is wrong with the other files."""
    found: list[DeclaredPipeline] = []
    problems: list[Problem] = []
    for name, path in pipeline_files(folder).items():
        file = f"{folder.parent.name}/{folder.name}/{path.name}"
        if name == LAKE:
            problems.append(
                Problem(file, 1, f"{LAKE} is the name of the lake's folders", "call the pipeline otherwise")
            )
            continue
        if path.suffix == ".sql":
            sql, wrong = read_sql_file(path)
            problems += wrong
            if sql is not None:
                source, *others = map(constant_of, sql.header.reads.values())
                written = tuple(map(constant_of, sql.header.targets))
                looked_up = [each.lookup for each in sql.header.lookups]
                lines = dict(zip(looked_up, sql.lookup_lines, strict=True))
                found.append(DeclaredPipeline(name, sql.file, sql.line, source, written, lines, *others))
            continue
        try:
            module = ast.parse(path.read_bytes())
        except SyntaxError as error:
            problems.append(Problem(file, error.lineno, f"not Python: {error.msg}", "mend it"))
            continue
        functions = list(_decorated(module))
        if [function.name for function, _ in functions] != [name]:
            cure = f"decorate one function with @pipeline, and call it {name}, like the file"
            problems.append(Problem(file, 1, f"there is not exactly one pipeline {name}", cure))
            continue
        ((function, call),) = functions
        reads = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        said = {each.arg: each.value for each in call.keywords if each.arg is not None}
        read = [_topic(said[each]) if each in said else None for each in reads]
        branches = _branches(said["writes"]) if "writes" in said else []
        if len(reads) not in (1, 2) or None in read or not branches or None in [topic for _, topic in branches]:
            named = ", ".join(f"{each}=topics.…" for each in reads[:2] or ["events"])
            cure = f"write @pipeline({named}, writes=topics.…)"
            problems.append(Problem(file, call.lineno, "the topics that it reads and writes are not named", cure))
            continue
        pairs = [(branch, str(topic)) for branch, topic in branches]
        if isinstance(said["writes"], ast.Dict) and (fault := fault_of_branches(pairs, len(reads))):
            problems.append(Problem(file, call.lineno, fault, 'write writes={"NAME": topics.…, "OTHER": topics.…}'))
            continue
        second = None if len(read) == 1 else str(read[1])
        written = tuple(topic for _, topic in pairs)
        try:
            lookups = _lookups(module, call)
        except _NoLookup as error:
            problems.append(Problem(file, error.line, *error.args))
            continue
        found.append(DeclaredPipeline(name, file, call.lineno, str(read[0]), written, lookups, second))
    return found, problems


def _decorated(module: ast.Module) -> Iterator[tuple[ast.FunctionDef, ast.Call]]:
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            for each in node.decorator_list:
                match each:
                    case ast.Call(func=ast.Name(id="pipeline")):
                        yield node, each


def _topic(value: ast.expr) -> str | None:
    """The constant, if it is one of `topics`."""
    match value:
        case ast.Attribute(value=ast.Name(id="topics"), attr=constant):
            return constant
        case _:
            return None


def _branches(value: ast.expr) -> list[tuple[str, str | None]]:
    """Name and constant of each branch; of one topic alone that, without a name."""
    if not isinstance(value, ast.Dict):
        return [("", _topic(value))]
    names = [str(key.value) if isinstance(key, ast.Constant) else "" for key in value.keys]
    return [(name, _topic(topic)) for name, topic in zip(names, value.values, strict=True)]


class _NoLookup(Exception):
    """Its arguments are what is wrong with a lookup, and the cure."""

    def __init__(self, line: int, what: str, cure: str) -> None:
        super().__init__(what, cure)
        self.line = line


def _lookups(module: ast.Module, decorator: ast.Call) -> dict[Lookup, int] | None:
    """The lookups that the decorator names, with their lines, if they are written out there or in a constant of the file. Raises _NoLookup."""
    said = {each.arg: each.value for each in decorator.keywords}
    if None in said:
        return None
    value = said.get("lookups")
    if value is None:
        return {}
    if isinstance(value, ast.Name):
        value = _constant(module, value.id)
    if not isinstance(value, ast.Tuple | ast.List):
        return None
    found: dict[Lookup, int] = {}
    for call in value.elts:
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "Lookup":
            return None
        if (lookup := _lookup(call)) is None:
            return None
        found[lookup] = call.lineno
    return found


def _lookup(call: ast.Call) -> Lookup | None:
    """None if something of it is computed."""
    if any(each.arg is None for each in call.keywords) or any(isinstance(each, ast.Starred) for each in call.args):
        return None
    named = {str(each.arg): each.value for each in call.keywords}
    if unknown := [name for name in named if name not in _OF_LOOKUP]:
        raise _NoLookup(call.lineno, f"a lookup has no {unknown[0]}", instead(unknown[0], _OF_LOOKUP))
    positional = _OF_LOOKUP[: len(call.args)]
    if twice := [name for name in positional if name in named]:
        raise _NoLookup(call.lineno, f"a lookup's {twice[0]} is given twice", "give it once")
    if missing := [name for name in _OF_LOOKUP if name != "as_of" and name not in (*positional, *named)]:
        raise _NoLookup(call.lineno, f"a lookup lacks {', '.join(missing)}", f"add {missing[0]}=…")
    if len(call.args) > len(_OF_LOOKUP):
        raise _NoLookup(call.lineno, f"a lookup has at most {len(_OF_LOOKUP)} arguments", ", ".join(_OF_LOOKUP))
    try:
        said = {
            name: ast.literal_eval(each)
            for name, each in (dict(zip(_OF_LOOKUP, call.args, strict=False)) | named).items()
        }
        return None if isinstance(said.get("by"), set) else _LOOKUP.validate_python(said)
    except (ValueError, TypeError):
        return None


def _constant(module: ast.Module, name: str) -> ast.expr | None:
    """What a module assigns to a name, which it uses nowhere but in the decorator."""
    if len([node for node in ast.walk(module) if isinstance(node, ast.Name) and node.id == name]) != 2:
        return None
    for node in module.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=target)], value=value)
                | ast.AnnAssign(target=ast.Name(id=target), value=value)
            ) if target == name:
                return value
    return None
