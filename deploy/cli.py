"""The console script `headrace`: which commands there are."""

from __future__ import annotations

import logging
import sys

import structlog
import typer

from contracts.cli import contracts_app
from contracts.errors import HeadraceError
from deploy.commands.audit import audit
from deploy.commands.bench import bench_app
from deploy.commands.dead_letters import dlq_app
from deploy.commands.dimensions import dimensions_app
from deploy.commands.pipelines import list_pipelines, state
from deploy.commands.plan import plan
from deploy.commands.provisioning import topics_app
from deploy.commands.records import send, tail, trace
from deploy.commands.repair import repair
from deploy.commands.rules import rules_app
from deploy.commands.stack import down, status, up
from deploy.commands.testing import test
from deploy.errors import DeployError
from deploy.new.commands import new_app

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Headrace: events under contract, on one machine.")

app.command("up")(up)
app.command("status")(status)
app.command("down")(down)
app.command("audit")(audit)
app.command("repair")(repair)
app.command("pipelines")(list_pipelines)
app.command("plan")(plan)
app.command("tail")(tail)
app.command("trace")(trace)
app.command("state")(state)
app.command("send")(send)
app.command("test")(test)
app.add_typer(bench_app, name="bench")
app.add_typer(dlq_app, name="dlq")
app.add_typer(contracts_app, name="contracts")
app.add_typer(topics_app, name="topics")
app.add_typer(dimensions_app, name="dimensions")
app.add_typer(rules_app, name="rules")
app.add_typer(new_app, name="new")


def main() -> None:
    """The entry point: an error that is the user's to cure is one sentence, not a traceback."""
    # What clients log of an outage belongs into a service's log: commands say it themselves, and their stdout may be JSON.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        app()
    except (DeployError, HeadraceError) as error:
        sys.exit(f"headrace: {error}")
    except KeyboardInterrupt:
        sys.exit("headrace: interrupted")
