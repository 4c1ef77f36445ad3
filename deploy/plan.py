"""`headrace plan`: what a change of the contracts means, beside an earlier state of the clone."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from contracts.checks.changes import WEIGHTS, Change, changes
from contracts.checks.retained import Retained
from contracts.definitions.catalog import Catalog, load_catalog, read_catalog
from deploy.errors import DeployError
from deploy.local import spark_command
from deploy.local.client import client_settings
from deploy.local.processes.deployable import ROOT
from deploy.pipelines import pipelines
from deploy.records.reread import reread
from deploy.records.retained_text import markdown_row, retained_lines, retained_markdown


@dataclass(frozen=True, slots=True)
class Plan:
    """What differs between the contracts `before`, where this branch left the revision `against` (`base`), and those here, `after`;
    and what that makes of the records that are `retained`, the newest `most` of each partition; None if nobody asked.
    """

    against: str
    base: str
    before: Catalog
    after: Catalog
    changes: list[Change]
    most: int = 0
    retained: list[Retained] | None = None


def plan(revision: str) -> Plan:
    """What the contracts' files say otherwise than those of a git revision.

    Raises DeployError if git does not know the revision, ContractError if a file can't be read.
    """
    after = load_catalog()
    with tempfile.TemporaryDirectory() as folder:
        base, before = _earlier(revision, Path(folder))
    return Plan(revision, base, before, after, changes(before, after))


def with_records(found: Plan, directory: Path, most: int, say: Callable[[str], None]) -> Plan:
    """The same with what becomes of the records that the running stack retains, the newest `most` of each partition. Writes nothing there.

    Raises DeployError when no stack runs, and RegistryUnavailable.
    """
    settings = client_settings(directory)
    changed = {change.contract for change in found.changes}
    both = sorted(changed & found.before.topics.keys() & found.after.topics.keys())
    retained = [reread(settings, topic, found.before, found.after, most, say) for topic in both]
    if names := _changed_pipelines(found, changed):
        said = spark_command.output("trial", [*names, "--most", str(most)], directory)
        # A JVM may say something there too.
        retained += [Retained.model_validate_json(line) for line in said.splitlines() if line.startswith('{"topic"')]
    # A pull request is no place for personal data.
    shown = [each.without_values(_personal(found, each.topic)) for each in retained]
    return replace(found, most=most, retained=shown)


def lines(found: Plan) -> Iterator[str]:
    """As text: a block for each contract."""
    if not found.changes:
        yield f"the contracts say what they say in {found.against}"
    contract = None
    for change in found.changes:
        if change.contract != contract:
            contract = change.contract
            yield f"{contract} ({change.owner})"
        yield f"  {change.weight:8}  {change.what}{_concerned(change)}"
    if found.changes:
        yield _sum(found.changes)
    if found.retained is not None:
        yield ""
        yield from retained_lines(found.retained, found.most)


def markdown(found: Plan) -> Iterator[str]:
    """As a comment of a pull request: what breaks comes first."""
    yield f"### Contracts, beside `{found.against}`"
    yield ""
    yield _sum(found.changes) if found.changes else "No contract changes."
    if found.changes:
        yield ""
        yield "| | contract | owner | what | for whom |"
        yield "|---|---|---|---|---|"
    for change in sorted(found.changes, key=lambda change: WEIGHTS.index(change.weight)):
        weight = f"**{change.weight}**" if change.weight == "breaking" else change.weight
        yield markdown_row(weight, f"`{change.contract}`", change.owner, change.what, ", ".join(change.concerned))
    if found.retained is not None:
        yield ""
        yield from retained_markdown(found.retained, found.most)


def as_json(found: Plan) -> dict[str, Any]:
    """As JSON values."""
    told: dict[str, Any] = {"against": found.against, "changes": [asdict(change) for change in found.changes]}
    if found.retained is not None:
        retained = [{"records": each.records, **each.model_dump()} for each in found.retained]
        told |= {"most_records_of_a_partition": found.most, "retained": retained}
    return told


def _changed_pipelines(found: Plan, contracts: set[str]) -> list[str]:
    """Those whose file has changed, or the contract of a topic or of a dimension that they use."""
    there = ("--", "spark/pipelines")
    files = _git("diff", "--name-only", "--relative", found.base, *there) + _git(
        "ls-files", "--others", "--exclude-standard", *there
    )
    stems = {Path(file).stem for file in files.decode().splitlines()}
    of_dimensions = {
        name for each in found.after.dimensions.values() if each.name in contracts for name in each.consumers
    }
    return [
        each.name
        for each in pipelines(found.after)
        if each.name in stems | of_dimensions or contracts & {*each.inputs, *each.writes}
    ]


def _personal(found: Plan, topic: str) -> set[str]:
    """The fields of a topic, by all of their names, that its contract lists as personal data, there or here, or that of its source."""
    names = set[str]()
    for catalog in (found.before, found.after):
        for each in (topic, *(catalog.topics[topic].sources if topic in catalog.topics else ())):
            if each in catalog.topics:
                own = catalog.topic(each).personal_data
                of = [field for field in catalog.parsed_schema(each)["fields"] if field["name"] in own]
                names.update(*[(field["name"], *field.get("aliases", ())) for field in of])
    renamed = {
        field["name"]
        for field in found.after.parsed_schema(topic)["fields"]
        if names.intersection(field.get("aliases", ()))
    }
    return names | renamed


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True).stdout


def _concerned(change: Change) -> str:
    return f" (for {', '.join(change.concerned)})" if change.concerned else ""


def _sum(found: Sequence[Change]) -> str:
    counts = Counter(change.weight for change in found)
    contracts = len({change.contract for change in found})
    said = ", ".join(f"{counts[weight]} {weight}" for weight in WEIGHTS if counts[weight])
    return f"{contracts} contract{'s' if contracts > 1 else ''}: {said}"


def _earlier(revision: str, folder: Path) -> tuple[str, Catalog]:
    """The commit where this branch left a revision, and its contracts, unpacked into a folder."""
    try:
        # What others have landed there since is not taken back by what is here.
        base = _git("merge-base", "--end-of-options", "HEAD", revision).decode().strip()
        archived = _git("archive", "--format=tar", base, "contracts")
    except FileNotFoundError:
        raise DeployError("There is no git on this machine, which knows the contracts before the change") from None
    except subprocess.CalledProcessError as error:
        said = " ".join(error.stderr.decode(errors="replace").split())
        if not said:
            raise DeployError(
                f"git knows no commit that this branch and {revision} have in common: fetch more of the history, as a shallow clone lacks it"
            ) from None
        raise DeployError(f"git has no contracts of {revision}: {said}. Name a commit, a branch or a tag") from None
    with tarfile.open(fileobj=io.BytesIO(archived)) as archive:
        # As an attribute: the argument `filter` came with Python 3.11.4.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    catalog, problems = read_catalog(folder / "contracts")
    if problems:
        raise DeployError(f"The contracts of {revision} can't be read: {problems[0]}")
    return base, catalog
