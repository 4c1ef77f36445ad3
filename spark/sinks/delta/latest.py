"""The newest revision of each row of a lake table: `LATEST`."""

from __future__ import annotations

from pathlib import Path

LATEST = Path(__file__).with_name("latest.sql").read_text(encoding="utf-8")
"""Plain SQL, for any engine: `{table}` is the table, which has the columns `coordinate` and `revision`."""
