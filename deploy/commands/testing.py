"""The command `headrace test`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer


def test(
    unit: Annotated[bool, typer.Option("--unit", help="Only the quick part, without the stack.")] = False,
    long: Annotated[
        bool,
        typer.Option(
            "--long", help="Only the long part, which CI leaves out: rarer cases, a whole fork, a year of events."
        ),
    ] = False,
    images: Annotated[bool, typer.Option("--images", help="Only the container images: build and run them.")] = False,
    expression: Annotated[str | None, typer.Option("-k", help="Only tests whose names match, as in pytest.")] = None,
    faults: Annotated[
        bool, typer.Option("--faults", help="Only the fault campaign, or the faults named; finished ones are kept.")
    ] = False,
    short: Annotated[
        bool, typer.Option("--short", help="With --faults: a few of them in both modes, in under half an hour.")
    ] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="With --faults: of their chance; 1 by default.")] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="With --faults: how many, from --seed on; 1 by default.")
    ] = None,
    mode: Annotated[
        Literal["exactly-once", "real-time"] | None,
        typer.Option(help="With --faults: of live; exactly-once by default."),
    ] = None,
    arguments: Annotated[list[str] | None, typer.Argument(help="For pytest, after `--`; or names of faults.")] = None,
) -> None:
    """Run the tests: the quick ones, then those on a real stack of their own."""
    from deploy.local.checks import Part, need_clone, run_faults, run_short_faults, run_tests

    need_clone()
    of_faults = {"--short": short, "--seed": seed is not None, "--seeds": seeds is not None, "--mode": mode is not None}
    of_tests = {"--unit": unit, "--long": long, "--images": images, "-k": expression is not None}
    for option, is_given in (of_tests if faults else of_faults).items():
        if is_given:
            why = "leave it or --faults out" if faults else "it is of the fault campaign: say --faults"
            raise typer.BadParameter(why, param_hint=option)
    if unit + long + images > 1:
        raise typer.BadParameter("give one of these", param_hint="--unit, --long, --images")
    rest = arguments or []
    is_named = bool(rest) and not rest[0].startswith("-")
    if short and (sum(of_faults.values()) > 1 or is_named):
        why = "its faults, their seed and modes are chosen: leave --seed, --seeds, --mode and NAME out"
        raise typer.BadParameter(why, param_hint="--short")
    if short:
        raise typer.Exit(run_short_faults(rest))
    if faults:
        raise typer.Exit(run_faults(rest, seed, seeds, mode))
    part: Part | None = "unit" if unit else "long" if long else "images" if images else None
    raise typer.Exit(run_tests(part, expression=expression, arguments=rest))
