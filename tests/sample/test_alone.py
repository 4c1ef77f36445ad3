"""No test stays on the tree's contracts unseen: which do is said here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from deploy.local.processes.deployable import ROOT
from tests.second_domain.domain import is_domain, machinery_tests

OF_THE_TREE = (
    # What the tree has is looked at itself, beside the sample or alone.
    "tests/alerting/rules/test_rulebook.py",
    "tests/audit/test_command.py",
    "tests/contracts/checks/test_check.py",
    "tests/contracts/definitions/test_catalog.py",
    "tests/contracts/definitions/test_examples.py",
    "tests/contracts/documents/test_documents.py",
    "tests/contracts/documents/test_generate.py",
    # What runs the tree's own commands and processes.
    "tests/deploy/local/processes/test_deployables.py",
    "tests/deploy/local/servers/test_stack.py",
    "tests/deploy/local/test_up.py",
    "tests/deploy/new/test_new.py",
    "tests/deploy/test_plan.py",
    "tests/spark/queries/test_filters.py",
    "tests/spark/records/test_limits.py",
    # What measures and breaks what the tree deploys.
    "tests/bench/*",
    "tests/faults/*",
)
"""They take names from the contracts, from the list of deployables, or from the loads of `bench` and `faults`."""
_ELSEWHERE = ("tests/sample/*", "tests/second_domain/*")


def test_no_other_test_reads_the_contracts_of_the_tree() -> None:
    paths = [path for path in machinery_tests() if path.endswith(".py") and not _is_of(path, OF_THE_TREE + _ELSEWHERE)]
    assert len(paths) > 150
    assert [f"{path}:{found}" for path in paths for found in _of_the_tree(ROOT / path)] == []


def test_each_of_those_that_may_does() -> None:
    for pattern in OF_THE_TREE:
        paths = [path for path in machinery_tests() if path.endswith(".py") and fnmatchcase(path, pattern)]
        assert any(list(_of_the_tree(ROOT / path)) for path in paths), pattern


def _is_of(path: str, patterns: tuple[str, ...]) -> bool:
    return is_domain(path) or any(fnmatchcase(path, each) for each in patterns)


def _of_the_tree(path: Path) -> Iterator[str]:
    """Where a file asks for the contracts, handles, events, rules or pipelines of the tree."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Name(id="load_catalog" | "check"), args=[], keywords=[]):
                yield f"{node.lineno}: {ast.unparse(node)}"
            case ast.Attribute(value=ast.Call(func=ast.Name(id="AlertingSettings"), args=[], keywords=[])):
                yield f"{node.lineno}: {ast.unparse(node)}"
            case ast.ImportFrom(module=str(module), names=names) if _is_the_trees(
                module, {each.name for each in names}
            ):
                yield f"{node.lineno}: {ast.unparse(node)}"


def _is_the_trees(module: str, names: set[str]) -> bool:
    match module:
        case "contracts":
            return bool(names & {"events", "topics"})
        case "spark":
            return "pipelines" in names
        case "contracts.definitions.catalog":
            return "CONTRACTS" in names
        case _:
            return module == "contracts.topics" or module.startswith("spark.pipelines")
