"""`python -m spark run|lake|repair|state|trial`: Headrace's Spark deployables."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

import structlog

from contracts.command_line import command_line
from contracts.definitions.catalog import load_catalog
from contracts.definitions.pipelines import pipeline_files
from contracts.errors import HeadraceError
from contracts.observe import configure_logging
from contracts.settings import read_settings
from spark.pipelines import load
from spark.queries import repair_command
from spark.queries.lake import run_lake
from spark.queries.run import run_pipelines
from spark.runtime.mode import GUARANTEES, Mode
from spark.runtime.settings import SparkSettings
from spark.state import command as state_command
from spark.trial import command as trial_command

_log = structlog.get_logger(__name__)

_SERVICES = {"run": "live", "lake": "lake", "repair": "repair", "state": "state", "trial": "trial"}
"""What each command calls itself in its log."""


def main() -> int:
    """Run one deployable until SIGTERM, or what ends by itself until it is done. Status 0: stopped as asked, or all done; 1: failed; 2: wrong
    settings.
    """
    parser = _parser()
    options = parser.parse_args()
    command: str = options.command
    settings = read_settings(SparkSettings)
    if command == "run":
        settings = _in_mode(parser, settings, options)
    configure_logging(settings, service=_SERVICES[command])
    # It tells of every call, and of every failure again, with its stack; the latter by the root logger itself.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)
    try:
        if command == "repair":
            repair_command.run(load(options.name), settings, options)
        elif command == "state":
            state_command.run(load(options.name), settings, options)
        elif command == "trial":
            trial_command.run(list(dict.fromkeys(options.names)), settings, options)
        elif command == "lake":
            run_lake(settings, load_catalog())
        else:
            run_pipelines([load(name) for name in dict.fromkeys(options.names)], settings, load_catalog())
    except HeadraceError as error:
        _log.error("stopped by a failure", reason=str(error))
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_line("spark", __doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    names = list(pipeline_files())
    which = f"a pipeline: {', '.join(names)}"
    run = commands.add_parser("run", help="run pipelines as their records come (--mode, HEADRACE_LIVE__MODE)")
    run.add_argument("names", nargs="+", choices=names, metavar="NAME", help=which)
    guarantees = "; ".join(f"{mode}: {guarantee}" for mode, guarantee in GUARANTEES.items())
    run.add_argument("--mode", choices=[mode.value for mode in Mode], help=guarantees)
    commands.add_parser("lake", help="copy every topic whose contract asks for it into its Delta table, exactly once")
    what = "enrich rows again whose dimension row came late, and send each once as its next revision"
    repair = commands.add_parser("repair", help=what, description=f"{what.capitalize()}.")
    repair.add_argument("name", choices=names, metavar="NAME", help=which)
    repair_command.add_options(repair)
    what = "print what the state of a pipeline holds, from its checkpoint, as JSON; writes nothing"
    state = commands.add_parser("state", help=what, description=f"{what.capitalize()}.")
    state.add_argument("name", choices=names, metavar="NAME", help=which)
    state_command.add_options(state)
    what = "say what pipelines would make of the records that are there, beside what was made of them; writes nothing"
    trial = commands.add_parser("trial", help=what, description=f"{what.capitalize()}.")
    trial.add_argument("names", nargs="+", choices=names, metavar="NAME", help=which)
    trial_command.add_options(trial)
    return parser


def _in_mode(parser: argparse.ArgumentParser, settings: SparkSettings, options: argparse.Namespace) -> SparkSettings:
    if options.mode is not None:
        settings = settings.model_copy(update={"live": settings.live.model_copy(update={"mode": Mode(options.mode)})})
    if fault := settings.live.fault():
        parser.error(fault)
    if len(set(options.names)) > 1 and (fault := settings.live.fault_of_several()):
        parser.error(f"{fault}: start a process for each")
    return settings


if __name__ == "__main__":
    sys.exit(main())
