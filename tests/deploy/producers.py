"""What the list of deployables and the folders say of the domain's producers, so that no test names one."""

from __future__ import annotations

from deploy.local.processes.deployable import ROOT, deployables

PRODUCERS = tuple(each.name for each in deployables().of("producer"))
REPLAYING = PRODUCERS if deployables().clock is not None else ()
DATA_SET = deployables().tables.partition("/")[0]
"""The package that the dimensions' source files are in."""
ROWS = sorted(
    path.parent.name for path in (ROOT / "services").glob("*/__init__.py") if not path.with_name("__main__.py").exists()
)
"""Rooms of services without a process of their own: what those that replay know of their data set."""
