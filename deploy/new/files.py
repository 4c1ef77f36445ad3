"""`NewFiles`: what `headrace new` writes: files of its own, and files that get a few lines more."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from contracts.definitions.contract_file import NotYaml, load_yaml
from deploy.errors import DeployError
from deploy.local.processes.deployable import ROOT

_TEMPLATES = Path(__file__).parent / "templates"


def rendered(template: str, **names: object) -> str:
    """A file of `templates/`, with the names that it asks for."""
    return Template((_TEMPLATES / template).read_text(encoding="utf-8")).substitute(names)


@dataclass(slots=True)
class NewFiles:
    """By path from the clone's root: the texts of new files, and the whole new texts of files that are there."""

    texts: dict[str, str] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)

    def append(self, path: str, text: str) -> None:
        """Some lines more for the end of a file."""
        self.changed[path] = self.now(path).rstrip("\n") + "\n" + text

    def replace(self, path: str, old: str, new: str) -> None:
        """Other words in a file. Raises DeployError if `old` does not stand there once."""
        now = self.now(path)
        if now.count(old) != 1:
            raise DeployError(f"{path}: '{old}' does not stand there once; edit the file by hand")
        self.changed[path] = now.replace(old, new)

    def write(self) -> list[str]:
        """Write all, or nothing; returns a line for each file. Raises DeployError if a new file is there already."""
        for path in self.texts:
            if (ROOT / path).exists():
                raise DeployError(
                    f"{path} is there already; nothing was written. Choose another name, or edit the file"
                )
        for path, text in self.changed.items():
            _check_yaml(path, text)
        before = {path: (ROOT / path).read_bytes() for path in self.changed}
        try:
            for path, text in {**self.texts, **self.changed}.items():
                (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
                (ROOT / path).write_text(text, encoding="utf-8")
        except OSError as error:
            for path in self.texts:
                with suppress(OSError):
                    (ROOT / path).unlink()
            for path, content in before.items():
                (ROOT / path).write_bytes(content)
            raise DeployError(f"{error.filename}: {error.strerror}; nothing was written") from error
        return [f"wrote {path}" for path in self.texts] + [f"changed {path}" for path in self.changed]

    def now(self, path: str) -> str:
        """The text of a file, with what was changed so far."""
        return self.changed.get(path) or (ROOT / path).read_text(encoding="utf-8")


def _check_yaml(path: str, text: str) -> None:
    try:
        load_yaml(text.encode())
    except NotYaml as error:
        raise DeployError(
            f"{path} has no place for an entry more; edit it by hand. Nothing was written: {error}"
        ) from error
