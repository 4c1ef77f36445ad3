"""The command line that every deployable has."""

from __future__ import annotations

import argparse


def command_line(module: str, description: str | None) -> argparse.ArgumentParser:
    """The parser of `python -m MODULE`: parse before anything else, so that `--help` and a wrong option do nothing."""
    return argparse.ArgumentParser(
        prog=f"python -m {module}", description=description, epilog="Settings come from HEADRACE_ variables."
    )
