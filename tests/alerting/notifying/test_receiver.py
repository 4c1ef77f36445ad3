"""The receivers file: who may be notified."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.alerting.notifying.receiver import ReceiversError, load_receivers

TOKEN = "T0K3N"


def load(tmp_path: Path, url: str, extra: str = "") -> str:
    """The problem with the file, or what says that there is none."""
    path = tmp_path / "receivers.yaml"
    path.write_text(
        f"allowed_hosts: [hooks.example.com]\nplain_http_hosts: [inside.example.com]\nreceivers:\n"
        f"  - name: ops\n    url: {url}\n{extra}",
        encoding="utf-8",
    )
    try:
        [receiver] = load_receivers(path)
    except ReceiversError as error:
        assert TOKEN not in str(error), "a secret is shown"
        return str(error).replace(f"{path}: file: Value error, receiver ops: ", "")
    assert TOKEN not in repr(receiver), "a secret is shown"
    return "none"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (f"https://hooks.example.com/{TOKEN}", "none"),
        (f"http://inside.example.com/{TOKEN}", "none"),
        (f"https://inside.example.com/{TOKEN}", "none"),
        (f"http://127.0.0.1:9000/{TOKEN}", "none"),
        (f"http://localhost/{TOKEN}", "none"),
        (f"'http://[::1]:9000/{TOKEN}'", "none"),
        (f"http://hooks.example.com/{TOKEN}", "host hooks.example.com must be spoken to by https, or stand in plain_http_hosts"),
        (f"https://example.com/{TOKEN}", "host example.com is not among allowed_hosts"),
        (f"https://hooks.example.com.evil.com/{TOKEN}", "host hooks.example.com.evil.com is not among allowed_hosts"),
        (f"https://169.254.169.254/{TOKEN}", "host 169.254.169.254 is not among allowed_hosts"),
        (f"https://me:{TOKEN}@hooks.example.com/", "url must not hold a user or password: use authorization"),
        (f"file:///etc/{TOKEN}", "url must begin with https:// and name a host"),
        (TOKEN, "url must begin with https:// and name a host"),
    ],
)  # fmt: skip
def test_only_allowed_hosts_are_spoken_to_and_by_https(url: str, problem: str, tmp_path: Path) -> None:
    assert load(tmp_path, url) == problem


def test_an_unknown_key_is_refused_by_name(tmp_path: Path) -> None:
    problem = load(tmp_path, f"https://hooks.example.com/{TOKEN}", f"    authorisation: {TOKEN}\n")
    assert problem.endswith("receivers.yaml: receivers.0.authorisation: Extra inputs are not permitted")


def test_two_receivers_of_one_name_are_refused(tmp_path: Path) -> None:
    url = f"https://hooks.example.com/{TOKEN}"
    assert load(tmp_path, url, f"  - name: ops\n    url: {url}\n") == "the name stands twice"


@pytest.mark.parametrize("value", [f"!!int {TOKEN}", f"!!bool {TOKEN}", f"{TOKEN}\x07"])
def test_a_file_that_is_no_yaml_is_refused_with_its_line_and_without_its_secrets(value: str, tmp_path: Path) -> None:
    problem = load(tmp_path, "https://hooks.example.com", f"    authorization: {value}\n")
    assert "receivers.yaml:6: not readable as YAML" in problem


def test_without_a_file_nobody_is_notified() -> None:
    assert load_receivers(None) == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("receivers: [", ":1: not readable as YAML"),
        ("- a", "file: "),
        ("[" * 100_000, ":1: not readable as YAML: more than 20 levels within each other"),
        ("#" * 2_000_000, ":1: not readable as YAML: it has more than 1000000 bytes"),
    ],
    ids=lambda text: text[:20],
)
def test_a_file_of_another_shape_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "receivers.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ReceiversError, match=problem):
        load_receivers(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReceiversError, match="not readable: FileNotFoundError"):
        load_receivers(tmp_path / "receivers.yaml")
