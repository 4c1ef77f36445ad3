"""`AuditSettings`: what the audit needs to know beside the addresses."""

from __future__ import annotations

from pathlib import Path

from contracts.settings import Settings
from services.alerting.settings import AlertingSettings


class AuditSettings(Settings):
    """`HEADRACE_RULES_FILE` is alerting's own: alerts are recomputed by the rules that are in force."""

    rules_file: Path = AlertingSettings.model_fields["rules_file"].default
