"""The environment of a peer, outside ours: its packages would not go with those of the lock.

Made from `locks/<peer>.txt` when it is first asked for, in the cache that all clones share. It counts once it carries the stamp, which
is written last.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from deploy.local.downloads.cache import cache_dir
from deploy.local.environment import InstallationFailed, install_lock
from tests.bench.peers.errors import PeerUnavailable

LOCKS = Path(__file__).parent / "locks"


def peer_python(peer: str, say: Callable[[str], None], *, locks: Path = LOCKS) -> Path:
    """The Python of a peer's environment, made if need be. Raises PeerUnavailable, after removing what is half-made."""
    lock = locks / f"{peer}.txt"
    # Not the interpreter of this clone: environments are made from the one below it.
    ours = f"{sys.version} {sys.base_prefix}"
    name = hashlib.sha256(lock.read_bytes() + ours.encode()).hexdigest()[:12]
    folder = cache_dir() / "peers" / f"{peer}-{name}"
    folder.parent.mkdir(exist_ok=True)
    stamp = folder / "headrace-stamp"
    with (folder.parent / f".{peer}.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)
            say(f"making the environment of {peer}, once: {folder}")
            try:
                install_lock(folder, lock, anew=True)
            except InstallationFailed as error:
                shutil.rmtree(folder, ignore_errors=True)
                raise PeerUnavailable(f"the environment of {peer} couldn't be made. {error}") from error
            stamp.write_text(lock.name)
    return folder / "bin" / "python"


def locked_version(peer: str, package: str) -> str:
    """The version of a package that a peer's lock names."""
    found = re.search(rf"^{re.escape(package)}==(\S+)", (LOCKS / f"{peer}.txt").read_text(), re.MULTILINE)
    if found is None:
        raise KeyError(f"{package} is not in the lock of {peer}")
    return found[1]
