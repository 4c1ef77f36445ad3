"""`headrace plan`: what a change of the contracts means, beside an earlier state of the clone."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from contracts.checks.changes import WEIGHTS, Change, changes
from contracts.definitions.catalog import Catalog, load_catalog, read_catalog
from deploy.errors import DeployError
from deploy.local.processes.deployable import ROOT


def plan(revision: str) -> list[Change]:
    """What the contracts' files say otherwise than those of a git revision.

    Raises DeployError if git does not know the revision, ContractError if a file can't be read.
    """
    after = load_catalog()
    with tempfile.TemporaryDirectory() as folder:
        return changes(_catalog_of(revision, Path(folder)), after)


def lines(found: Sequence[Change], revision: str) -> Iterator[str]:
    """As text: a block for each contract."""
    if not found:
        yield f"the contracts say what they say in {revision}"
        return
    contract = None
    for change in found:
        if change.contract != contract:
            contract = change.contract
            yield f"{contract} ({change.owner})"
        yield f"  {change.weight:8}  {change.what}{_concerned(change)}"
    yield _sum(found)


def markdown(found: Sequence[Change], revision: str) -> Iterator[str]:
    """As a comment of a pull request: what breaks comes first."""
    yield f"### Contracts, beside `{revision}`"
    yield ""
    yield _sum(found) if found else "No contract changes."
    if not found:
        return
    yield ""
    yield "| | contract | owner | what | for whom |"
    yield "|---|---|---|---|---|"
    for change in sorted(found, key=lambda change: WEIGHTS.index(change.weight)):
        weight = f"**{change.weight}**" if change.weight == "breaking" else change.weight
        cells = (weight, f"`{change.contract}`", change.owner, change.what, ", ".join(change.concerned))
        yield "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"


def as_json(found: Sequence[Change], revision: str) -> dict[str, Any]:
    """As JSON values."""
    return {"against": revision, "changes": [asdict(change) for change in found]}


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True).stdout


def _concerned(change: Change) -> str:
    return f" (for {', '.join(change.concerned)})" if change.concerned else ""


def _sum(found: Sequence[Change]) -> str:
    counts = Counter(change.weight for change in found)
    contracts = len({change.contract for change in found})
    said = ", ".join(f"{counts[weight]} {weight}" for weight in WEIGHTS if counts[weight])
    return f"{contracts} contract{'s' if contracts > 1 else ''}: {said}"


def _catalog_of(revision: str, folder: Path) -> Catalog:
    """The contracts where this branch left a revision, unpacked into a folder."""
    try:
        # What others have landed there since is not taken back by what is here.
        base = _git("merge-base", "--end-of-options", "HEAD", revision).decode().strip()
        archived = _git("archive", "--format=tar", base, "contracts")
    except FileNotFoundError:
        raise DeployError("There is no git on this machine, which knows the contracts before the change") from None
    except subprocess.CalledProcessError as error:
        said = " ".join(error.stderr.decode(errors="replace").split())
        raise DeployError(f"git has no contracts of {revision}: {said}. Name a commit, a branch or a tag") from None
    with tarfile.open(fileobj=io.BytesIO(archived)) as archive:
        archive.extractall(folder, filter="data")
    catalog, problems = read_catalog(folder / "contracts")
    if problems:
        raise DeployError(f"The contracts of {revision} can't be read: {problems[0]}")
    return catalog
