"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_DIRECTORY = Path(".headrace")
Directory = Annotated[Path, typer.Option("--dir", help="Where the stack keeps data and logs.")]
RunningStack = Annotated[
    Path, typer.Option("--dir", help="The running stack's folder; HEADRACE_KAFKA__BOOTSTRAP_SERVERS goes before it.")
]
