"""What the alerting service counts."""

from __future__ import annotations

from prometheus_client import REGISTRY, Counter, Gauge

from services.alerting.delays import Delays

RECORDS = Counter("headrace_alerting_records", "Records handled.", ["topic"])
ALERTS = Counter("headrace_alerting_alerts", "Alerts raised, repeats after a restart included.", ["rule"])
DEAD_LETTERS = Counter("headrace_alerting_dead_letters", "Records that could not be handled.", ["topic", "reason"])
LOST = Counter("headrace_alerting_records_lost", "Offsets that were deleted before they were read.", ["topic"])
CUT = Counter(
    "headrace_alerting_topics_cut", "Times that a partition ended before the next offset: made anew, or cut.", ["topic"]
)
DELAY = Delays(
    "headrace_alerting_delay_seconds",
    "From the sending of a record to its evaluation.",
    bounds=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600),
)
REGISTRY.register(DELAY)
WAITING = Gauge("headrace_alerting_waiting_records", "Records with alerts on their way, not yet acknowledged.")
RESTARTS = Counter("headrace_alerting_restarts", "Times that the consumer made no progress and began anew.")
REGISTRY_WAITS = Counter("headrace_alerting_registry_waits", "Times that a record waited for the schema registry.")
RULES = Gauge("headrace_alerting_rules", "Rules in force, by version of the rules file.", ["version"])
RULES_REFUSED = Gauge("headrace_alerting_rules_refused", "1 while the rules file as it is can't be used.")
RELOAD_FAILURES = Counter("headrace_alerting_reload_failures", "Changed rules files that were refused.")
NOTIFICATIONS = Counter("headrace_alerting_notifications", "Attempts to notify a receiver.", ["receiver", "outcome"])
COOLDOWNS_CUT = Counter(
    "headrace_alerting_cooldowns_cut", "Cooldowns forgotten before their end: there were too many groups.", ["receiver"]
)
HELD_BACK = Counter("headrace_alerting_held_back", "Alerts that a cooldown held back.", ["receiver"])
