"""`generated`: the models and handles of the parcels, made of their contracts. `python -m tests.sample.generated` writes them."""

from __future__ import annotations

from itertools import groupby

from contracts.documents.generated_files import GeneratedFiles
from contracts.documents.python import generate
from tests import sample

_OWN = ("alerts_raised", "deadletters_settled", "replay_started", "rules_activated")
"""The platform's own, whose models and handles are the product's: its code publishes them."""
_OF_OURS = ("from contracts", "from tests")


def generated() -> GeneratedFiles:
    """As `headrace contracts generate` writes them for the product, but in this package."""
    made = generate(sample.catalog())
    texts = {path: _here(text) for path, text in made.texts.items() if path.stem not in _OWN}
    return GeneratedFiles(sample.SAMPLE, texts, made.patterns)


def _here(text: str) -> str:
    """The import lines stand in the order that the linter asks for."""
    runs = groupby(map(_line, text.split("\n")), lambda line: line.startswith(_OF_OURS))
    return "\n".join(line for of_ours, lines in runs for line in (sorted(lines) if of_ours else lines))


def _line(line: str) -> str:
    if line.startswith(tuple(f"from contracts.events.{name} " for name in _OWN)):
        return line
    line = line.replace("from contracts.events.", "from tests.sample.events.")
    return line.replace("from contracts import events", "from tests.sample import events")


if __name__ == "__main__":
    for path in generated().write():
        print(path)
