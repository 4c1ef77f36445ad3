"""`sql_pipeline`: the pipeline that a SQL file is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame

from contracts.definitions.sql_file import SqlFile, read_sql_file
from spark.pipeline import Pipeline
from spark.runtime.errors import PipelineUnfit
from spark.runtime.internals.statements import NotASelect, selected


def sql_pipeline(path: Path) -> Pipeline:
    """Its function is the file's SELECT. Raises PipelineUnfit with line, reason and cure if the file can't be read; the function raises it if
    the statement reads or calls what it may not.
    """
    found, problems = read_sql_file(path)
    if found is None:
        raise PipelineUnfit("; ".join(map(str, problems)))
    header = found.header
    lookups = tuple(each.lookup for each in header.lookups)
    source, *others = header.reads.values()
    return Pipeline(
        path.stem, source, header.writes, lookups, _function(found), header.output, second=next(iter(others), None)
    )


def _function(file: SqlFile) -> Callable[[DataFrame], DataFrame]:
    def function(*frames: DataFrame) -> DataFrame:
        tables = dict(zip(file.header.reads, frames, strict=True))
        try:
            return selected(frames[0].sparkSession, file.text, tables)
        except NotASelect as error:
            raise PipelineUnfit(f"{file.file}:{error.line}: {error}") from None

    return function
