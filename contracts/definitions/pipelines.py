"""Which topics the pipelines read and write, by their files: `declared_pipelines`. No file is run, and Spark need not be there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from contracts.definitions.branches import fault_of_branches
from contracts.definitions.contract_file import Problem
from contracts.definitions.sql_file import read_sql_file
from contracts.definitions.topic import constant_of

PIPELINES = Path(__file__).parents[2] / "spark" / "pipelines"
"""One file for each, in Python or SQL; it bears the name of the pipeline."""

LAKE = "lake"
"""No pipeline's name: a pipeline's lease and checkpoint lie in folders of its name, and those of the lake in folders of this one."""


@dataclass(frozen=True, slots=True)
class DeclaredPipeline:
    """The decorator of a pipeline's function, or the header of its SQL file. `reads`, `joins` and `writes` are constants of `contracts.topics`;
    `joins` is the second topic that it reads, `writes` has more than one of a branch.
    """

    name: str
    file: str
    line: int
    reads: str
    writes: tuple[str, ...]
    joins: str | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """All that it reads."""
        return (self.reads,) if self.joins is None else (self.reads, self.joins)


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
                found.append(DeclaredPipeline(name, sql.file, sql.line, source, written, *others))
            continue
        try:
            functions = list(_decorated(ast.parse(path.read_bytes())))
        except SyntaxError as error:
            problems.append(Problem(file, error.lineno, f"not Python: {error.msg}", "mend it"))
            continue
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
        joins = None if len(read) == 1 else str(read[1])
        found.append(DeclaredPipeline(name, file, call.lineno, str(read[0]), tuple(topic for _, topic in pairs), joins))
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
