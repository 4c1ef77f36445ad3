"""Every generated document as a file: written by `headrace contracts docs`, compared by `… docs --check`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from contracts.definitions.catalog import Catalog
from contracts.documents.asyncapi import asyncapi
from contracts.documents.diagram import BEGIN, END, with_diagram
from contracts.documents.generated_files import GeneratedFiles
from contracts.documents.odcs import odcs
from contracts.errors import ContractError

_HEADER = "# Generated from the contracts by `headrace contracts docs`; do not edit.\n"
_FLOW = Path("docs/flow.md")


def documents(catalog: Catalog) -> GeneratedFiles:
    """The flow diagram in docs/flow.md, one ODCS file per topic and one AsyncAPI file, beside the contracts' folder.

    Raises ContractError when docs/flow.md has no place for the diagram.
    """
    project = catalog.root.parent
    page = project / _FLOW
    if not page.exists():
        raise ContractError(f"there is no {page} to hold the flow diagram: write it, with the lines {BEGIN} and {END}")
    texts = {_FLOW: with_diagram(page.read_text(encoding="utf-8"), catalog)}
    texts[Path("docs/asyncapi.yaml")] = _yaml(asyncapi(catalog))
    return GeneratedFiles(project, texts | odcs_files(catalog), ("docs/odcs/*.yaml",))


def odcs_files(catalog: Catalog) -> dict[Path, str]:
    """One ODCS file per topic: what its fields mean, its owner and its promises."""
    return {Path("docs/odcs") / f"{topic.name}.yaml": _yaml(odcs(catalog, topic)) for topic in catalog.topics.values()}


class _Dumper(yaml.SafeDumper):
    """Repeats what is shared instead of writing anchors, which readers of these standards do not expect."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(content: dict[str, Any]) -> str:
    return _HEADER + yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
