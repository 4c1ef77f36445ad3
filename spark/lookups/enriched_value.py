"""The value of an enriched record, of parts that are encoded where they are known: `EnrichedValue`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from contracts.errors import ContractError
from spark.lookups.dimensions import Dimension
from spark.lookups.enrich import LOOKUPS, Lookup, sides
from spark.records.decode import wire_header
from spark.records.wire import encoded, encoding

_STAMPED = ("dimension_versions", "revision")
_LOOKUP_OF = {field: lookup for lookup in LOOKUPS for field in lookup.fills_in}


@dataclass(frozen=True, slots=True)
class _Run:
    """Fields that stand side by side in the schema, and are filled in by one lookup, or by none."""

    fields: tuple[str, ...]
    lookup: Lookup | None
    stamped: bool

    @property
    def column(self) -> str:
        """Of a side, where they are encoded."""
        return f"{self.fields[0]}_avro"


class EnrichedValue:
    """Makes the values of `live`: first of the sides, which are joined to the departures, then of the joined rows.

    What a row of a dimension fills in is the same in every record that finds it, and the stamp in every record of a batch. So those
    parts are encoded once. Encoding each field of each record was a quarter of all that a task does with a backlog.
    """

    def __init__(self, schema: str, schema_id: int) -> None:
        """`schema` is JSON text. Raises ContractError if it has no null for a field that a lookup fills in."""
        self._schema = schema
        self._schema_id = schema_id
        names = [field["name"] for field in json.loads(schema)["fields"]]
        self._runs = [_Run(tuple(run), *origin) for origin, run in itertools.groupby(names, _origin)]
        self._not_found = {run: self._nulls(run) for run in self._runs if run.lookup}

    def sides(self, dimensions: Sequence[DataFrame]) -> list[DataFrame]:
        """For `spark.lookups.enrich.look_up`, as `spark.lookups.enrich.sides`, but with a column of bytes for each run of fields."""
        return [
            side.select(
                lookup.found,
                *[encoded(self._schema, run.fields).alias(run.column) for run in self._runs if run.lookup is lookup],
            )
            for lookup, side in zip(LOOKUPS, sides(dimensions), strict=True)
        ]

    def column(self, dimensions: Mapping[str, Dimension]) -> Column:
        """The value of a row of `look_up`, whose sides are of these `dimensions`."""
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
        return F.concat(F.lit(wire_header(self._schema_id)), *parts)

    def _nulls(self, run: _Run) -> bytes:
        try:
            return encoding(self._schema, dict.fromkeys(run.fields))
        except (TypeError, ValueError) as error:
            raise ContractError(
                f"{', '.join(run.fields)}: a lookup that finds no row leaves them null, which the schema must allow ({error})"
            ) from error


def _origin(field: str) -> tuple[Lookup | None, bool]:
    return _LOOKUP_OF.get(field), field in _STAMPED
