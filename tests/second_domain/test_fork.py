"""A fork that replaces only the domain's files keeps every rule, and leaves the machinery's files as they are."""

from __future__ import annotations

from deploy.local.processes.deployable import ROOT
from tests.deploy.clone import Clone
from tests.second_domain.domain import is_domain, machinery_files, product_files
from tests.second_domain.fork import TREE

_IMPORT_ALL = """
import importlib, pathlib
for path in sorted(path for room in ("contracts", "services", "spark", "deploy") for path in pathlib.Path(room).rglob("*.py")):
    importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
"""


def test_its_contracts_keep_every_rule(forked: Clone) -> None:
    assert forked.headrace("contracts", "check") == "8 topics and 1 dimensions keep every rule\n"
    assert forked.headrace("contracts", "generate") == "the generated code is up to date\n"
    forked.headrace("contracts", "docs")
    forked.headrace("contracts", "docs", "--check")
    assert "1 about hires.ended.enriched.v1" in forked.headrace("rules", "check", "services/alerting/rules.yaml")
    assert {"hires_enriched", "electric_hires"} <= set(forked.headrace("pipelines").split())


def test_it_lays_over_the_domain_only(forked: Clone) -> None:
    ours = {path.relative_to(TREE).as_posix() for path in TREE.rglob("*") if path.is_file()}
    assert [path for path in ours if "__pycache__" not in path and not is_domain(path)] == []
    machinery = machinery_files()
    assert [path for path in machinery if (forked.root / path).read_bytes() != (ROOT / path).read_bytes()] == []
    rest = set(product_files(forked.root)) - {*machinery, *ours}
    assert {path.rsplit("/", 1)[0] for path in rest} == {"contracts/events", "contracts/topics"}, "not generated"


def test_every_module_can_be_imported(forked: Clone) -> None:
    done = forked.run("-c", _IMPORT_ALL)
    assert done.returncode == 0, done.stderr


def test_what_sets_a_clock_is_refused_where_none_is(forked: Clone) -> None:
    assert "deploy/deployables.yaml has none: leave them out" in forked.refusal("up", "--speed", "2")


def test_it_passes_the_linter(forked: Clone) -> None:
    for arguments in (["check"], ["format", "--check"]):
        done = forked.run("-m", "ruff", *arguments, ".")
        assert done.returncode == 0, done.stdout
