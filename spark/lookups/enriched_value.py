"""The value of an enriched record, of parts that are encoded where they are known: `EnrichedValue`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from contracts.definitions.lookup import Lookup
from contracts.errors import ContractError
from contracts.records.wire import frame
from spark.lookups.dimensions import Dimension
from spark.lookups.join import sides
from spark.records.wire import encoded, encoding

STAMPED = ("dimension_versions", "revision")
"""Fields that every record of a batch has the same values in."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Fields that stand side by side in the schema, and are filled in by one lookup, or by none."""

    fields: tuple[str, ...]
    lookup: Lookup | None
    stamped: bool

    @property
    def column(self) -> str:
        """Of a side, where they are encoded."""
        return f"__{self.fields[0]}_avro"


class EnrichedValue:
    """Makes the values of an enriched topic: first of the sides, which are joined to the events, then of the joined rows.

    What a row of a dimension fills in is the same in every record that finds it, and the stamp in every record of a batch. So those
    parts are encoded once. Encoding each field of each record was a quarter of all that a task does with a backlog.
    """

    def __init__(
        self,
        schema: str,
        schema_id: int,
        lookups: Sequence[Lookup],
        unchanged: Collection[str],
        used: Collection[str],
    ) -> None:
        """`schema` is JSON text. `unchanged` are the columns of `look_up` that come out of a pipeline as they went in, `used` those that it
        computes with. Raises ContractError if the schema has no null for a field that a lookup fills in.
        """
        self._schema = schema
        self._schema_id = schema_id
        self._lookups = lookups
        self._used = used
        lookup_of = {field: lookup for lookup in lookups for field in lookup.fields if field in unchanged}
        names = [field["name"] for field in json.loads(schema)["fields"]]
        runs = itertools.groupby(names, lambda name: (lookup_of.get(name), name in STAMPED))
        self._runs = [_Run(tuple(run), *origin) for origin, run in runs]
        self._not_found = {run: self._nulls(run) for run in self._runs if run.lookup}

    def sides(self, dimensions: Mapping[str, Dimension]) -> list[DataFrame]:
        """For `look_up`: of `spark.lookups.join.sides` only the fields that are computed with, and one column of bytes for each run.

        No column is left over: Spark would prune it by a projection between side and join, which a kept broadcast does not bear.
        """
        return [
            side.select(
                *lookup.keys,
                *lookup.interval,
                *[field for field in lookup.fields if field in self._used],
                *[encoded(self._schema, run.fields).alias(run.column) for run in self._runs if run.lookup is lookup],
            )
            for lookup, side in zip(self._lookups, sides(self._lookups, dimensions), strict=True)
        ]

    def column(self, dimensions: Mapping[str, Dimension]) -> Column:
        """The value of a row that was made of one of `look_up`, whose sides are of these `dimensions`."""
        stamp = {"dimension_versions": {name: each.version for name, each in dimensions.items()}, "revision": 0}
        parts = []
        for run in self._runs:
            if run.lookup:
                parts.append(F.coalesce(F.col(run.column), F.lit(self._not_found[run])))
            elif run.stamped:
                parts.append(F.lit(encoding(self._schema, {name: stamp[name] for name in run.fields})))
            elif run.fields == ("unmatched",):  # mostly empty
                none = F.lit(encoding(self._schema, {"unmatched": []}))
                parts.append(F.when(F.size("unmatched") == 0, none).otherwise(encoded(self._schema, run.fields)))
            else:
                parts.append(encoded(self._schema, run.fields))
        return F.concat(F.lit(frame(self._schema_id)), *parts)

    def _nulls(self, run: _Run) -> bytes:
        try:
            return encoding(self._schema, dict.fromkeys(run.fields))
        except (TypeError, ValueError) as error:
            raise ContractError(
                f"{', '.join(run.fields)}: a lookup that finds no row leaves them null, which the schema must allow ({error})"
            ) from error
