"""What the list of deployables and the folders say of the domain's producers, so that no test names one."""

from __future__ import annotations

import tomllib

from deploy.local.processes.deployable import ROOT, deployables

PRODUCERS = tuple(each.name for each in deployables().of("producer"))
_EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
PACKED = tuple(name for name in PRODUCERS if name in _EXTRAS)
"""Those with an extra, which is what a container needs; another runs on this machine only."""
REPLAYING = tuple(
    name
    for name in PRODUCERS
    if any("services.replay" in file.read_text(encoding="utf-8") for file in (ROOT / "services" / name).rglob("*.py"))
)
"""Those that use the replay kit."""
DATA_SET = deployables().tables.partition("/")[0]
"""The package that the dimensions' source files are in."""
ROWS = sorted(
    path.parent.name for path in (ROOT / "services").glob("*/__init__.py") if not path.with_name("__main__.py").exists()
)
"""Rooms of services without a process of their own: what those that replay know of their data set."""
