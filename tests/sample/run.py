"""`python -m tests.sample.run MODULE ARGUMENTS`: a module of the product, with the contracts and rules of the parcels for the tree's."""

from __future__ import annotations

import os
import runpy
import sys

import contracts.definitions.catalog
from tests import sample


def main() -> None:
    """Before the module is imported, for what it imports may look at the contracts already."""
    contracts.definitions.catalog.CONTRACTS = sample.CONTRACTS
    os.environ.setdefault("HEADRACE_RULES_FILE", str(sample.RULES))
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
