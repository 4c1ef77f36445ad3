"""`new_rule`: an alert rule."""

from __future__ import annotations

import tempfile
from pathlib import Path

from contracts.checks.schema_rules import kind
from contracts.definitions.catalog import Catalog
from deploy.errors import DeployError
from deploy.new.files import NewFiles, rendered
from services.alerting.rules.rulebook import RulebookError, load_rulebook

_RULES = "services/alerting/rules.yaml"
_NUMBERS = ("int", "long", "float", "double")


def new_rule(name: str, topic: str, field: str | None, threshold: float, catalog: Catalog) -> NewFiles:
    """A threshold for `field`, by default the topic's first number. Raises DeployError if alerting would refuse it."""
    contract, fields = catalog.topic(topic), catalog.parsed_schema(topic)["fields"]
    numbers = [each["name"] for each in fields if kind(each["type"]).removesuffix("?") in _NUMBERS]
    if not numbers:
        raise DeployError(f"{topic} has no numeric field")
    names = {
        "name": name,
        "topic": topic,
        "field": field or numbers[0],
        "threshold": int(threshold) if threshold.is_integer() else threshold,
        "group": contract.key or contract.occurred_at,
    }
    files = NewFiles()
    if "\nrules: []\n" in files.now(_RULES):
        files.replace(_RULES, "\nrules: []\n", "\nrules:\n")
    files.append(_RULES, rendered("rule.yaml", **names))
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder, "rules.yaml")
        trial.write_text(files.changed[_RULES], encoding="utf-8")
        try:
            load_rulebook(trial, catalog)
        except RulebookError as error:
            said = str(error).replace(str(trial), _RULES)
            raise DeployError(f"nothing was written, for alerting would refuse it:\n{said}") from None
    return files
