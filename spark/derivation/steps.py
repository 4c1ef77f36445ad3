"""Whether the steps of a pipeline's function can be run record by record: `check_steps`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from contracts.definitions.topic import TopicContract
from spark.derivation.faults import PLATFORM
from spark.derivation.of_the_moment import of_the_moment
from spark.derivation.raising import raises_for
from spark.pipeline import Pipeline
from spark.runtime.errors import PipelineUnfit
from spark.runtime.internals.plans import (
    EXPAND,
    EXPLODE,
    FILTER,
    INLINE,
    NotRowByRow,
    element_ids,
    expressions,
    items,
    kind_of,
    steps,
    taken_out,
)

_RAISING = ("RaiseError", "AssertTrue")
_SECOND = slice(1, 2)
_LENGTHS = {
    "Sequence": slice(None),
    "StringSpace": slice(None),
    **dict.fromkeys(("ArrayRepeat", "ArrayInsert", "StringRepeat", "StringLPad", "StringRPad"), _SECOND),
}
"""Expressions whose value is as long as these inputs of theirs say."""
_TAKING_OUT = ("AttributeReference", "Alias", "GetStructField")


def check_steps(pipeline: Pipeline, made: DataFrame, given: DataFrame, target: TopicContract) -> None:
    """Raises PipelineUnfit, which says what to change."""
    check_names(pipeline, made.columns)
    try:
        found = list(steps(made, given))
        explodes = [step.nodeName() for step in found].count(EXPLODE)
        if target.has_parts and explodes != 1:
            raise PipelineUnfit(
                f"{pipeline.name} explodes {explodes} arrays, and the contract of {target.name} says records: many: explode one, or write "
                "records: each or some there"
            )
        elements = next((element_ids(step) for step in found if step.nodeName() == EXPLODE), set[int]())
        is_above = target.has_parts
        if any(step.nodeName() == EXPAND for step in found):
            raise NotRowByRow("Expand")
        for step in found:
            check_names(pipeline, [str(each.name()) for each in items(step.output())])
            if step.nodeName() == FILTER and not (target.is_filtered or target.is_sequence):
                raise PipelineUnfit(
                    f"{pipeline.name} leaves records out, and the contract of {target.name} promises one for each: write records: some there, "
                    "or keep them all"
                )
            if step.nodeName() == EXPLODE:
                is_above = False
                _check_explode(pipeline, step, target)
            elif is_above:
                _check_above_explode(pipeline, step, elements)
            check_expressions(pipeline, step)
    except NotRowByRow as error:
        raise PipelineUnfit(
            f"{pipeline.name} has a step that needs more than one row, {error}: it can only filter rows, explode an array, and add, choose "
            "and rename columns"
        ) from error


def _check_explode(pipeline: Pipeline, step: Any, target: TopicContract) -> None:
    if not target.has_parts:
        raise PipelineUnfit(
            f"{pipeline.name} makes several records of one, and the contract of {target.name} promises one at most: write records: many "
            "there"
        )
    kind = kind_of(step.generator())
    is_array = kind == INLINE or str(items(step.generator().children())[0].dataType().typeName()) == "array"
    if kind not in ("Explode", INLINE) or not is_array or step.outer():
        raise PipelineUnfit(
            f"{pipeline.name}: {step.generator()}: use explode or inline of an array, which alone number the records"
        )


def _check_above_explode(pipeline: Pipeline, step: Any, elements: set[int]) -> None:
    """Whether a record is good is known before it becomes several: it is sent with all of them, or is one dead letter. `elements` are the
    ids of columns that fields may be taken out of.
    """
    is_other = step.nodeName() == FILTER or {kind_of(each) for each in expressions(step)} - set(_TAKING_OUT)
    taken = [kind_of(each) == "GetStructField" for each in expressions(step)].count(True)
    is_other = is_other or taken != len([each for each in items(step.expressions()) if taken_out(each) in elements])
    names = [] if is_other else [_names(each) for each in items(step.expressions()) if kind_of(each) == "Alias"]
    renamed = [f"{before} to {after}" for before, after in names if before != after]
    if is_other or renamed:
        what = f"renames {', '.join(renamed)}" if renamed else "filters or computes"
        raise PipelineUnfit(
            f"{pipeline.name} {what} after or beside exploding an array: filter, compute and name in a step of its own before, or in the "
            "array's elements"
        )


def _names(alias: Any) -> tuple[str, str]:
    """Of a column, or of a struct's field, and that which it gets."""
    child = alias.child()
    before = child.extractFieldName() if kind_of(child) == "GetStructField" else child.name()
    return str(before), str(alias.name())


def check_names(pipeline: Pipeline, names: Sequence[str]) -> None:
    if own := [name for name in names if name in PLATFORM or name.startswith("__")]:
        raise PipelineUnfit(
            f"{pipeline.name} has a column {own[0]}, and such names are the platform's: give it a name of its own"
        )


def check_expressions(pipeline: Pipeline, step: Any) -> None:
    """Raises PipelineUnfit if one of a step's expressions can't be computed for each record, once and for all."""
    for each in expressions(step):
        _check_expression(pipeline, each)
    for each in expressions(step, tried=False):
        if (cure := raises_for(each)) is not None:
            raise PipelineUnfit(
                f"{pipeline.name}: {each} fails for some values, and one record with such a value would stop the pipeline, for good: {cure}"
            )


def _check_expression(pipeline: Pipeline, each: Any) -> None:
    kind = kind_of(each)
    if kind.endswith("Subquery"):
        raise PipelineUnfit(f"{pipeline.name} reads another table by {each}: use a lookup")
    if "Python" in kind:
        raise PipelineUnfit(f"{pipeline.name} calls a Python function for each row, {each}: write it as an expression")
    if kind in _RAISING:
        raise PipelineUnfit(
            f"{pipeline.name}: {each} stops the pipeline at a record, for good: leave a field null, which makes a dead letter where "
            "the schema has no null for it"
        )
    if kind in _LENGTHS and not all(child.foldable() for child in items(each.children())[_LENGTHS[kind]]):
        raise PipelineUnfit(
            f"{pipeline.name}: {each} is as long as a field says, and one record could fill the memory: give a length of its own"
        )
    if (found := of_the_moment(each)) is not None:
        what, cure = found
        raise PipelineUnfit(
            f"{pipeline.name}: {each} {what}, and a record that is made again must be the same one: {cure}"
        )
