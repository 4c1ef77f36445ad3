"""Jars from a mirror on this disk, by the real Ivy: what a company's Ivy settings file would name."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from deploy.errors import JarsUnavailable
from deploy.local.downloads.jars import Jar, ensure_jars, read_lock, unpacked


def silent(line: str) -> None:
    """Progress is for people."""


class Mirror:
    """A Maven repository in a folder, and a lock of what lies in it."""

    def __init__(self, directory: Path) -> None:
        self.repository = directory / "mirror"
        self.lock = directory / "jars.txt"
        self.lock.write_text("# tools\n")
        self.settings = directory / "ivysettings.xml"
        self.settings.write_text(
            '<ivysettings><settings defaultResolver="mirror"/><resolvers>'
            f'<ibiblio name="mirror" m2compatible="true" root="{self.repository.as_uri()}/"/></resolvers></ivysettings>'
        )

    def publish(self, path: str, content: bytes, *, sha256: str | None = None) -> Path:
        file = self.repository / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        sha256 = sha256 or hashlib.sha256(content).hexdigest()
        self.lock.write_text(self.lock.read_text() + f"{sha256}  {path}\n")
        return file


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    found = Mirror(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    monkeypatch.setenv("HEADRACE_IVY_SETTINGS", str(found.settings))
    return found


ONE = "org/example/one/1.0/one-1.0.jar"
TWO = "org/example/two/2.0/two-2.0-fat.jar"


def test_jars_are_fetched_once(mirror: Mirror) -> None:
    files = [mirror.publish(ONE, b"one"), mirror.publish(TWO, b"two, with a classifier")]
    folder = ensure_jars(["tools"], lock=mirror.lock, say=silent)["tools"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        file.name: file.read_bytes() for file in files
    }
    for file in files:
        file.unlink()
    assert ensure_jars(["tools"], lock=mirror.lock, say=silent) == {"tools": folder}


def test_a_wrong_checksum_is_refused_and_nothing_of_it_stays(mirror: Mirror) -> None:
    mirror.publish(ONE, b"one")
    mirror.publish(TWO, b"something else", sha256=hashlib.sha256(b"two").hexdigest())
    with pytest.raises(
        JarsUnavailable, match=r"^two-2\.0-fat\.jar was downloaded with checksum .* where the lock says"
    ):
        ensure_jars(["tools"], lock=mirror.lock, say=silent)
    assert not list(mirror.lock.parent.rglob("a cache/**/two-*"))


def test_an_incomplete_download_goes_on_with_what_is_missing(mirror: Mirror) -> None:
    one, two = mirror.publish(ONE, b"one"), mirror.publish(TWO, b"two")
    two.unlink()
    with pytest.raises(JarsUnavailable, match=r"^two-2\.0-fat\.jar .*check the network.*HEADRACE_IVY_SETTINGS"):
        ensure_jars(["tools"], lock=mirror.lock, say=silent)
    one.unlink()
    two.write_bytes(b"two")
    folder = ensure_jars(["tools"], lock=mirror.lock, say=silent)["tools"]
    assert {path.name for path in folder.iterdir()} == {one.name, two.name}


def test_a_lock_that_says_otherwise_has_a_folder_of_its_own(mirror: Mirror) -> None:
    mirror.publish(ONE, b"one")
    before = ensure_jars(["tools"], lock=mirror.lock, say=silent)["tools"]
    lock = mirror.lock.read_text()
    mirror.lock.write_text("# tools\n")
    newer = mirror.publish("org/example/one/1.1/one-1.1.jar", b"one, newer")
    after = ensure_jars(["tools"], lock=mirror.lock, say=silent)["tools"]
    assert [path.name for path in after.iterdir()] == [newer.name]
    mirror.lock.write_text(lock)
    assert ensure_jars(["tools"], lock=mirror.lock, say=silent)["tools"] == before
    assert [path.name for path in before.iterdir()] == ["one-1.0.jar"]


def test_a_jar_that_was_damaged_in_the_cache_is_fetched_again(mirror: Mirror) -> None:
    one = mirror.publish(ONE, b"one")
    folder = ensure_jars(["tools"], lock=mirror.lock, say=silent)["tools"]
    (folder / one.name).write_bytes(b"on")
    ensure_jars(["tools"], lock=mirror.lock, say=silent)
    assert (folder / one.name).read_bytes() == b"one"


def test_settings_that_are_no_file_are_named(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.publish(ONE, b"one")
    monkeypatch.setenv("HEADRACE_IVY_SETTINGS", "/nowhere/ivysettings.xml")
    with pytest.raises(JarsUnavailable, match="HEADRACE_IVY_SETTINGS names /nowhere/ivysettings.xml"):
        ensure_jars(["tools"], lock=mirror.lock, say=silent)


def test_an_archive_is_unpacked_once(mirror: Mirror) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        member = tarfile.TarInfo("app/quarkus-run.jar")
        member.size = 3
        tar.addfile(member, io.BytesIO(b"run"))
    mirror.publish("org/example/app/3.0/app-3.0-all.tar.gz", content.getvalue())
    folder = ensure_jars(["tools"], lock=mirror.lock, say=silent)["tools"]
    assert unpacked("tools", folder) == folder / "app-3.0-all"
    assert (unpacked("tools", folder) / "app" / "quarkus-run.jar").read_bytes() == b"run"


def test_the_lock_names_every_jar_once_with_its_checksum() -> None:
    groups = read_lock()
    assert set(groups) == {"spark", "spark-s3a", "broker", "s3proxy", "registry"}
    for jars in groups.values():
        assert len({jar.name for jar in jars}) == len(jars)
        assert all(len(jar.sha256) == 64 and isinstance(jar, Jar) for jar in jars)
