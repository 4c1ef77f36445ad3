"""The environment of a peer: made once, or one sentence and nothing half-made."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.bench.peers.environment import peer_python
from tests.bench.peers.errors import PeerUnavailable


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for locks; nothing can be downloaded, and the cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    folder = tmp_path / "locks"
    folder.mkdir()
    return folder


def test_what_cannot_be_downloaded_is_one_sentence_and_leaves_nothing(locks: Path, tmp_path: Path) -> None:
    (locks / "storm.txt").write_text(f"storm==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(PeerUnavailable, match="the environment of storm couldn't be made. The package index can't be"):
        peer_python("storm", print, locks=locks)
    assert list((tmp_path / "cache" / "headrace" / "peers").glob("storm-*")) == []


def test_an_environment_is_made_once(locks: Path) -> None:
    said: list[str] = []
    (locks / "storm.txt").write_text("")
    python = peer_python("storm", said.append, locks=locks)
    assert subprocess.run([python, "-c", "import pip"], check=False).returncode == 0
    assert peer_python("storm", said.append, locks=locks) == python
    assert len(said) == 1
