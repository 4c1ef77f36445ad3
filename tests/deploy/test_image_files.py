"""The image files, where no engine builds them: what they call and copy is there."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_FILES = sorted((_ROOT / "deploy" / "images").glob("*.Dockerfile"))


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_what_an_image_file_calls_is_there(file: Path) -> None:
    text = file.read_text()
    for module in re.findall(r"python -m ((?:deploy|spark|contracts)[\w.]*)", text):
        assert importlib.util.find_spec(module) is not None, module
    for module, name, uses in re.findall(r"from ([\w.]+) import (\w+); print\(\2\.(\w+)\(\)\)", text):
        assert hasattr(getattr(importlib.import_module(module), name), uses), f"{module}.{name}.{uses}"


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_what_an_image_file_copies_is_there(file: Path) -> None:
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", file.read_text(), re.MULTILINE)
    assert copied
    for path in " ".join(copied).split():
        assert "$" in path or list(_ROOT.glob(path)), path
