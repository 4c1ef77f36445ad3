"""`python -m tests.faults [NAME…] --seed N`: the fault campaign; `headrace test --faults` calls it."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from spark.runtime.mode import Mode
from tests.faults.campaign import AFTERWARDS, OWN_TOPICS, Campaign, Kept
from tests.faults.fault import MODES, Fault
from tests.faults.kinds.every import FAULTS
from tests.faults.report import report
from tests.faults.stage.cast import CASTS, FIRST, SECOND
from tests.faults.stage.disk import enter_own_namespace
from tests.faults.stage.stage import Stage

_ODD_RECORDS = 1_000
"""For each of Headrace's own topics, times the strikes."""
_INTERVALS_SECONDS = (3600.0, 5.0)
"""Of the first pipeline in real-time mode: with an even first seed, and with an odd one."""
_AFTER = (AFTERWARDS, OWN_TOPICS)
RESULTS = Path(__file__).parent.parent.parent / "fault-results"


def run(
    names: Sequence[str],
    seeds: Sequence[int],
    strikes: int,
    mode: Mode,
    *,
    cast: str = FIRST,
    is_together: bool = False,
) -> int:
    """Run the named faults with each seed, or those that have not passed with it, on one stack; print a report for each.
    The exit status. `cast`: one of `CASTS`; `is_together`: as `Campaign.run` takes it.
    """
    known = {fault.name: fault for fault in FAULTS if mode in fault.modes}
    if unknown := set(names) - known.keys():
        _say(f"in the mode {mode} there is no fault {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        return 2
    after = _AFTER[:1] if names else _AFTER
    kept = {seed: Kept(_results(seed, mode, cast).with_suffix(".jsonl")) for seed in seeds}
    chosen = {seed: each for seed in seeds if (each := _chosen(known, names, after, kept[seed]))}
    if chosen:
        with (
            TemporaryDirectory(prefix="headrace-faults-") as folder,
            Stage(
                Path(folder) / "stack",
                strikes=strikes,
                say=_say,
                mode=mode,
                pipelines=CASTS[mode][cast],
                interval_seconds=_INTERVALS_SECONDS[seeds[0] % 2],
            ) as stage,
        ):
            campaign = Campaign(stage, _say)
            for outcome in campaign.run(chosen, is_together=is_together):
                # What follows all faults is about each seed.
                for seed in chosen if outcome.fault == AFTERWARDS else [outcome.seed]:
                    kept[seed].add(outcome)
            if not names:
                own_topics = campaign.end(strikes * _ODD_RECORDS)
                for seed in chosen:
                    kept[seed].add(own_topics)
    has_passed = True
    for seed in seeds:
        outcomes = kept[seed].outcomes()
        page = "\n".join(report(seed, [outcomes[name] for name in [*known, *_AFTER] if name in outcomes]))
        _results(seed, mode, cast).with_suffix(".txt").write_text(page + "\n", encoding="utf-8")
        print(page)
        has_passed &= all(name in outcomes and outcomes[name].passed for name in [*(names or known), *after])
    return 0 if has_passed else 1


def _results(seed: int, mode: Mode, cast: str) -> Path:
    """Of each mode and cast their own, named where they are not the usual ones."""
    usual = {Mode.EXACTLY_ONCE, FIRST}
    return RESULTS / "-".join([*(each for each in (mode, cast) if each not in usual), f"seed-{seed}"])


def _chosen(known: Mapping[str, Fault], names: Sequence[str], after: Sequence[str], kept: Kept) -> list[Fault]:
    done = {name for name, outcome in kept.outcomes().items() if outcome.passed}
    chosen = [fault for name, fault in known.items() if (name in names if names else name not in done)]
    if not chosen and not done.issuperset(after):
        # What is looked at afterwards needs a stack that has been through something.
        return list(known.values())[-1:]
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="; ".join(fault.name for fault in FAULTS))
    parser.add_argument("--seed", type=int, default=1, help="of their chance (default: 1)")
    parser.add_argument(
        "--seeds", type=int, default=1, help="how many, from --seed on, one after the other on one stack (default: 1)"
    )
    parser.add_argument(
        "--strikes", type=int, default=4, help="how often a fault strikes that is about a moment (default: 4)"
    )
    parser.add_argument(
        "--together",
        action="store_true",
        help="those of a seed strike back to back; recovery, ledger, oracle and audit follow the last (default: each)",
    )
    parser.add_argument(
        "--mode",
        choices=sorted(mode.value for mode in MODES),
        default=Mode.EXACTLY_ONCE.value,
        help="of live; in real-time mode, with intervals of 5 s for an odd seed and an hour for an even one, what it repeats after a failure is counted and "
        "compared (default: exactly-once)",
    )
    parser.add_argument(
        "--cast",
        choices=sorted(CASTS[Mode.EXACTLY_ONCE]),
        default=FIRST,
        help=f"which pipelines run: {FIRST}, {_told(FIRST)}; {SECOND}, {_told(SECOND)} (default: {FIRST})",
    )
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Also where a shell has made a background job deaf to SIGINT.
        signal.signal(number, signal.default_int_handler)
    enter_own_namespace(["-m", "tests.faults", *sys.argv[1:]])
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    mode = Mode(arguments.mode)
    try:
        return run(arguments.names, seeds, arguments.strikes, mode, cast=arguments.cast, is_together=arguments.together)
    except KeyboardInterrupt:
        _say(f"interrupted: the faults that were finished are in {RESULTS}")
        return 128 + signal.SIGINT


def _told(cast: str) -> str:
    return ", ".join(CASTS[Mode.EXACTLY_ONCE][cast])


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
