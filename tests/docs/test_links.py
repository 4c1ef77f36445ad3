"""README is for the first ten minutes, and what the pages point to is there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]

_FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def links(text: str) -> list[str]:
    """The targets of a page's links, code left out."""
    return _LINK.findall(_CODE.sub("", _FENCED.sub("", text)))


def anchors(text: str) -> Iterator[str]:
    """The fragments that lead to a page's headings, as GitHub makes them."""
    seen = Counter[str]()
    for heading in _HEADING.findall(_FENCED.sub("", text)):
        anchor = re.sub(r"[^\w -]", "", re.sub(r"\]\([^)]*\)", "", heading)).lower().replace(" ", "-")
        yield f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor
        seen[anchor] += 1


def broken(page: Path) -> list[str]:
    """The page's relative links that lead nowhere."""
    found = []
    for link in links(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, fragment = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (fragment and fragment not in anchors(target.read_text(encoding="utf-8"))):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`: c?\n[1](#a-b-c) [2](page.md#a-b-c) [3](gone.md) [4](#gone) `[5](code.md)` [6](https://x.y)\n"
    )
    assert broken(page) == ["gone.md", "#gone"]


def test_readme_is_read_in_ten_minutes() -> None:
    assert (ROOT / "README.md").stat().st_size <= 10_000
