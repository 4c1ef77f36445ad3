"""The reference enrichment: `enrich`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

DIMENSIONS = ("airlines", "airports", "planes")
"""In the order in which `enrich` takes them."""

DEPARTURE = (
    "flight_id",
    "carrier",
    "flight_number",
    "tail_number",
    "origin",
    "destination",
    "flight_date",
    "scheduled_departure_at",
    "departed_at",
    "departure_delay_minutes",
    "distance_miles",
)


@dataclass(frozen=True, slots=True)
class Lookup:
    """A left join: a departure's `field` is looked up in the `key` of a `dimension`, whose row `LOOKED_UP` calls `row`."""

    name: str
    """As `unmatched` tells it."""
    row: str
    dimension: str
    key: str
    field: str

    @property
    def found(self) -> str:
        """The column of `sides` that is null where no row was found."""
        return f"{self.row}_key"

    @property
    def fills_in(self) -> dict[str, str]:
        """The enriched fields that it fills in, and the dimension's columns that they come from."""
        sources = {field: source.split(".") for field, source in LOOKED_UP.items()}
        return {field: column for field, (row, column) in sources.items() if row == self.row}


LOOKUPS = (
    Lookup("airlines", row="airline", dimension="airlines", key="carrier", field="carrier"),
    Lookup("airports.origin", row="origin", dimension="airports", key="airport", field="origin"),
    Lookup("airports.destination", row="destination", dimension="airports", key="airport", field="destination"),
    Lookup("planes", row="plane", dimension="planes", key="tail_number", field="tail_number"),
)

LOOKED_UP = {
    "airline_name": "airline.name",
    "origin_name": "origin.name",
    "origin_timezone": "origin.timezone",
    "destination_name": "destination.name",
    "destination_timezone": "destination.timezone",
    "destination_latitude_degrees": "destination.latitude_degrees",
    "destination_longitude_degrees": "destination.longitude_degrees",
    "destination_altitude_feet": "destination.altitude_feet",
    "plane_built_year": "plane.built_year",
    "plane_manufacturer": "plane.manufacturer",
    "plane_model": "plane.model",
    "plane_engines": "plane.engines",
    "plane_seats": "plane.seats",
    "plane_engine_type": "plane.engine_type",
}
"""Each field that is filled in, and where it comes from."""


def enrich(departures: DataFrame, airlines: DataFrame, airports: DataFrame, planes: DataFrame) -> DataFrame:
    """Fill in airline, airports and plane of each departure; rows out = rows in.

    `departures` has the columns of `DEPARTURE`, then `dimension_versions` and `revision` as they are to be stamped on
    the result, then any that pass through untouched. The dimensions have the columns of their contracts; their keys
    are unique, which the contract says and the dimension service checks. The result has the fields of
    flights.departed.enriched.v1 and after them what passed through. `unmatched` names the lookups that had no row, a
    departure without tail number included.
    """
    found = look_up(departures, sides([airlines, airports, planes]))
    others = [name for name in found.columns if name not in {*DEPARTURE, *LOOKED_UP}]
    return found.select(*DEPARTURE, *LOOKED_UP, *others)


def sides(dimensions: Sequence[DataFrame]) -> list[DataFrame]:
    """Of each of `LOOKUPS` the key, called `found`, and the enriched fields that it fills in; no column more."""
    frames = dict(zip(DIMENSIONS, dimensions, strict=True))
    return [frames[lookup.dimension].select(_side(lookup)) for lookup in LOOKUPS]


def look_up(departures: DataFrame, looked_up: Sequence[DataFrame]) -> DataFrame:
    """`enrich` with its `sides`, or with others: a side is a key, called `found`, and columns that it fills in."""
    carried = [f"departure.{name}" for name in departures.columns if name not in DEPARTURE]
    filled_in: list[str] = []
    joined = departures.alias("departure")
    for lookup, side in zip(LOOKUPS, looked_up, strict=True):
        joined = joined.join(F.broadcast(side), _matches(lookup), how="left")
        filled_in += [name for name in side.columns if name != lookup.found]
    return joined.select(*[f"departure.{name}" for name in DEPARTURE], *filled_in, _unmatched(), *carried)


def _side(lookup: Lookup) -> list[Column]:
    filled_in = [F.col(column).alias(field) for field, column in lookup.fills_in.items()]
    return [F.col(lookup.key).alias(lookup.found), *filled_in]


@functools.cache
def _matches(lookup: Lookup) -> Column:
    """Kept, like the fields: parsing them would be a tenth of a small batch."""
    return F.expr(f"departure.{lookup.field} = {lookup.found}")


@functools.cache
def _unmatched() -> Column:
    # Not filter(): a lambda would take the whole stage out of Spark's code generation.
    missing = ", ".join(f"if({each.found} IS NULL, '{each.name}', '')" for each in LOOKUPS)
    return F.expr(f"array_remove(array({missing}), '') AS unmatched")
