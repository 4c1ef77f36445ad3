"""`python -m services.audit`: proves by the records that nothing was lost, doubled, reordered, changed or made up."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence

from contracts.command_line import command_line
from contracts.definitions.catalog import Catalog, load_catalog
from contracts.errors import HeadraceError
from contracts.settings import read_settings
from services.alerting.rules.rulebook import RulebookError, load_rulebook
from services.audit.audit import WAIT_SECONDS, Audit, begun_since
from services.audit.declared.aggregates import load_aggregates
from services.audit.declared.filters import load_filters
from services.audit.declared.joins import load_joins
from services.audit.declared.lookups import load_lookups
from services.audit.declared.rankings import load_rankings
from services.audit.hops.hop import HOPS, Hop
from services.audit.plan import plan
from services.audit.report import Report
from services.audit.settings import AuditSettings
from services.audit.sources.broker import Broker
from services.audit.sources.workers import Workers
from services.audit.state import load, save

CLEAN, FINDINGS, NO_VERDICT = 0, 1, 2


def audit(
    settings: AuditSettings,
    catalog: Catalog,
    *,
    full: bool = False,
    wait_seconds: float = WAIT_SECONDS,
    hops: Sequence[Hop] = HOPS,
    at_least_once: bool = False,
    processes: int | None = None,
) -> Report:
    """Audit what the settings name. A clean audit of all hops is remembered, and the next one, unless `full`, begins there.

    Raises CouldNotAudit and other HeadraceErrors, RulebookError.
    """
    rulebook = load_rulebook(settings.rules_file, catalog)
    planned = plan(
        catalog,
        load_lookups(settings.lookups_file, catalog),
        load_filters(settings.filters_file, catalog),
        load_aggregates(settings.aggregates_file, catalog),
        load_joins(settings.joins_file, catalog),
        load_rankings(settings.rankings_file, catalog),
    )
    last = load(settings.s3) if set(hops) == set(HOPS) else None
    since = None if full else last
    if since is not None and (begun := begun_since(Broker(settings.kafka.client_config()), planned, since)):
        _say(f"{', '.join(begun)} began since the last clean audit: auditing all that is there")
        since = None
    with Workers(_say, processes=processes) as workers:
        run = Audit(
            settings,
            planned,
            rulebook,
            workers,
            since=since,
            last=last,
            wait_seconds=wait_seconds,
            hops=hops,
            at_least_once=at_least_once,
            say=_say,
        )
        report = run.run()
    if report.is_clean and set(hops) == set(HOPS):
        save(settings.s3, run.state())
    return report


def run(
    settings: AuditSettings,
    catalog: Catalog,
    *,
    full: bool,
    as_json: bool,
    wait_seconds: float,
    hops: Sequence[Hop],
    at_least_once: bool = False,
) -> int:
    """Audit and print; the exit status. 1 says that something is wrong with the records, so nothing else may say it."""
    try:
        report = audit(settings, catalog, full=full, wait_seconds=wait_seconds, hops=hops, at_least_once=at_least_once)
    except (HeadraceError, RulebookError) as error:
        _say(f"no verdict: {error}")
        return NO_VERDICT
    except Exception:  # noqa: BLE001
        traceback.print_exc()
        _say("no verdict: the audit itself failed")
        return NO_VERDICT
    print(json.dumps(report.json(), indent=1) if as_json else "\n".join(report.lines()))
    return CLEAN if report.is_clean else FINDINGS


def main() -> int:
    """The exit status: 0 clean, 1 findings, 2 no verdict."""
    parser = command_line("services.audit", __doc__)
    parser.add_argument("--full", action="store_true", help="everything, not only what came since the last clean audit")
    parser.add_argument("--json", action="store_true", help="print JSON, with every finding")
    parser.add_argument(
        "--wait",
        type=float,
        default=WAIT_SECONDS,
        metavar="SECONDS",
        help=f"for what lags behind the cut ({WAIT_SECONDS:g})",
    )
    parser.add_argument(
        "--hop", action="append", choices=[hop.value for hop in HOPS], help="only this one; may be given more than once"
    )
    parser.add_argument(
        "--at-least-once",
        action="store_true",
        help="for real-time mode: live may have repeated records after a failure, note them",
    )
    arguments = parser.parse_args()
    return run(
        read_settings(AuditSettings),
        load_catalog(),
        full=arguments.full,
        as_json=arguments.json,
        wait_seconds=arguments.wait,
        hops=[Hop(name) for name in arguments.hop or HOPS],
        at_least_once=arguments.at_least_once,
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
