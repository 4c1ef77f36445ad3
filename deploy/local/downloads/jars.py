"""The jars of the lock, fetched once into a cache that all clones share.

The lock (`deploy/locks/jars.txt`) names every file by checksum and repository path, in groups that each go into a folder
of their own, because Spark's kafka-clients and the broker's must not meet. They are fetched with the Ivy that lies among
PySpark's jars: no address stands in the project, and a company's mirror comes in by `HEADRACE_IVY_SETTINGS`, the path of
an Ivy settings file. Nothing is resolved transitively: the lock is complete.

A file takes its place in the cache when its checksum is right, in one rename; so what is there is whole, and an
interrupted download goes on with what is missing.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from deploy.errors import JarsUnavailable
from deploy.local.downloads.cache import cache_dir
from deploy.local.downloads.java import java_command, network_options

LOCK = Path(__file__).parents[2] / "locks" / "jars.txt"

_ATTEMPTS = 3
_PARALLEL = 3
"""The downloads wait for the network, but each is a JVM, and two cores serve no more than this many."""


@dataclass(frozen=True)
class Jar:
    """One file of the lock."""

    sha256: str
    path: str

    @property
    def name(self) -> str:
        """Its file name, in the repository and in the cache."""
        return self.path.rsplit("/", 1)[1]

    def dependency(self) -> str:
        """Its line of an `ivy.xml`."""
        *organisation, artifact, revision, name = self.path.split("/")
        rest = name.removeprefix(f"{artifact}-{revision}")
        classifier, _, extension = rest.partition(".")
        named = f" m:classifier={quoteattr(classifier[1:])}" if classifier else ""
        return (
            f"<dependency org={quoteattr('.'.join(organisation))} name={quoteattr(artifact)} rev={quoteattr(revision)}"
            f' transitive="false"><artifact name={quoteattr(artifact)} type={quoteattr(extension)}'
            f" ext={quoteattr(extension)}{named}/></dependency>"
        )


def read_lock(path: Path = LOCK) -> dict[str, list[Jar]]:
    """The groups of the lock: lines of `<sha256>  <repository path>` under a `# <group>` line."""
    groups: dict[str, list[Jar]] = {}
    jars: list[Jar] = []
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            jars = groups.setdefault(line[1:].strip(), [])
        elif line:
            sha256, where = line.split()
            jars.append(Jar(sha256, where))
    return groups


def say_on_stderr(line: str) -> None:
    """The default way to report progress."""
    print(line, file=sys.stderr, flush=True)


def ensure_jars(
    groups: Sequence[str] = (), *, lock: Path = LOCK, say: Callable[[str], None] = say_on_stderr
) -> dict[str, Path]:
    """The folder of each group (of all that the lock has, if none is named), after fetching what the cache lacks.

    Raises JarsUnavailable when a file can't be had or has another checksum than the lock says; the files that were
    right stay, so that the next call has less to do.
    """
    locked = read_lock(lock)
    groups = groups or tuple(locked)
    root = cache_dir() / "jars"
    root.mkdir(exist_ok=True)
    folders = {group: root / _folder_name(group, locked[group]) for group in groups}
    with _alone(root / ".lock", say):
        missing = {
            folder: [jar for jar in locked[group] if not _is_whole(folder, jar)] for group, folder in folders.items()
        }
        missing = {folder: jars for folder, jars in missing.items() if jars}
        if missing:
            _fetch(root, missing, say)
    return folders


def _folder_name(group: str, jars: Sequence[Jar]) -> str:
    """Another one where the lock says otherwise: what clones of two versions share would else have both in one class path."""
    lines = "".join(f"{jar.sha256}  {jar.path}\n" for jar in jars)
    return f"{group}-{hashlib.sha256(lines.encode()).hexdigest()[:12]}"


def unpacked(group: str, directory: Path) -> Path:
    """The folder into which the one archive of a group is unpacked, doing so when it isn't yet."""
    archive = next(directory.glob("*.tar.gz"))
    target = directory / archive.name.removesuffix(".tar.gz")
    with _alone(directory.parent / f".{group}.lock", say_on_stderr):
        if not target.exists():
            partial = directory / ".unpacking"
            shutil.rmtree(partial, ignore_errors=True)
            with tarfile.open(archive) as tar:
                # As an attribute: the argument `filter` came with Python 3.11.4.
                tar.extraction_filter = getattr(tarfile, "data_filter", None)
                tar.extractall(partial)
            os.replace(partial, target)
    return target


def _fetch(root: Path, missing: dict[Path, list[Jar]], say: Callable[[str], None]) -> None:
    total = sum(len(jars) for jars in missing.values())
    say(f"fetching {total} jars in {len(missing)} groups into {root} (once for all clones)")
    failures: list[JarsUnavailable] = []
    done = threading.Event()

    def fetch(folder: Path) -> None:
        try:
            _fetch_group(folder, missing[folder], done, say)
        except JarsUnavailable as failure:
            failures.append(failure)

    def report() -> None:
        while not done.wait(5):
            megabytes = sum(f.stat().st_size for f in root.rglob("*") if f.is_file()) / 1e6
            here = sum((folder / jar.name).exists() for folder, jars in missing.items() for jar in jars)
            say(f"  {here} of {total} jars, {megabytes:.0f} MB in the cache")

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        # The biggest downloads first: one archive is half of all bytes.
        with ThreadPoolExecutor(_PARALLEL) as pool:
            try:
                list(pool.map(fetch, sorted(missing, key=lambda folder: len(missing[folder]))))
            finally:
                done.set()
    except OSError as error:
        raise _no_space(root) if error.errno == errno.ENOSPC else error from error
    finally:
        reporter.join()
    if failures:
        raise failures[0]


def _fetch_group(folder: Path, jars: list[Jar], ended: threading.Event, say: Callable[[str], None]) -> None:
    started = time.monotonic()
    root, group = folder.parent, folder.name.rpartition("-")[0]
    downloads = root / ".ivy" / folder.name
    downloads.mkdir(parents=True, exist_ok=True)
    output = ""
    for _ in range(_ATTEMPTS):
        jars = _take(downloads, folder, jars)
        if not jars:
            shutil.rmtree(downloads)
            say(f"  {group}: ready after {time.monotonic() - started:.0f} s")
            return
        if ended.is_set():
            return  # interrupted: no second attempt
        output = _run_ivy(downloads, jars)
    jars = _take(downloads, folder, jars)
    if not jars:
        shutil.rmtree(downloads)
        return
    if "No space left on device" in output:
        raise _no_space(root)
    log = downloads / "ivy.log"
    raise JarsUnavailable(
        f"{jars[0].name} and {len(jars) - 1} more jars of group {group} couldn't be downloaded: check the network, or name"
        f" your company's mirror in an Ivy settings file by HEADRACE_IVY_SETTINGS (details: {log})."
    )


def _run_ivy(downloads: Path, jars: Sequence[Jar]) -> str:
    """Download into Ivy's own cache below `downloads`; what Ivy says of itself is returned and kept in ivy.log."""
    module = downloads / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="headrace" module="jars"/><dependencies>\n'
        + "\n".join(jar.dependency() for jar in jars)
        + "\n</dependencies></ivy-module>\n"
    )
    command = [java_command(), "-Xmx128m", "-XX:+UseSerialGC", *network_options(), "-cp", str(_ivy())]
    command += ["org.apache.ivy.Main", "-ivy", str(module), "-cache", str(downloads / "cache")]
    settings = os.environ.get("HEADRACE_IVY_SETTINGS")
    if settings:
        if not Path(settings).is_file():
            raise JarsUnavailable(f"HEADRACE_IVY_SETTINGS names {settings}, which is no file: correct or unset it.")
        command += ["-settings", settings]
    finished = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    (downloads / "ivy.log").write_text(finished.stdout)
    return finished.stdout


def _ivy() -> Path:
    # PySpark is looked up, not imported: importing takes a second and Spark isn't needed here.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsUnavailable(
            "PySpark, whose Ivy fetches the jars, isn't installed: run ./headrace again to install it."
        )
    return next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))


def _take(downloads: Path, directory: Path, jars: Sequence[Jar]) -> list[Jar]:
    """Move what Ivy has downloaded into its place; return what is still missing.

    Raises JarsUnavailable on a wrong checksum, after deleting the download.
    """
    directory.mkdir(exist_ok=True)
    missing = []
    for jar in jars:
        found = next((downloads / "cache").rglob(jar.name), None)
        if found is None:
            missing.append(jar)
        elif (sha256 := _sha256(found)) == jar.sha256:
            os.replace(found, directory / jar.name)
        else:
            shutil.rmtree(downloads)
            raise JarsUnavailable(
                f"{jar.name} was downloaded with checksum {sha256[:12]}…, where the lock says {jar.sha256[:12]}…:"
                " it was deleted; run the command again, and if it stays so ask whoever runs your mirror."
            )
    return missing


def _is_whole(directory: Path, jar: Jar) -> bool:
    """Whether the file lies in its place with the locked checksum; one that was damaged since is deleted."""
    path = directory / jar.name
    if not path.exists():
        return False
    if _sha256(path) == jar.sha256:
        return True
    path.unlink()
    return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _no_space(root: Path) -> JarsUnavailable:
    free = shutil.disk_usage(root).free / 1e6
    return JarsUnavailable(
        f"There are only {free:.0f} MB free in {root} where the jars take 700: make room, or name another folder by"
        " XDG_CACHE_HOME, and run the command again."
    )


@contextmanager
def _alone(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another run that fills the same cache")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        for name, directory in ensure_jars(sys.argv[1:]).items():
            print(name, directory)
    except JarsUnavailable as failure:
        sys.exit(str(failure))
