"""Every dispatched parcel with its courier, depots and van."""

from __future__ import annotations

from pyspark.sql import DataFrame

from spark.pipeline import Lookup, pipeline
from tests.sample import topics

LOOKUPS = (
    Lookup("couriers", dimension="couriers", by="courier", fields={"courier_name": "name"}),
    Lookup(
        "depots.origin",
        dimension="depots",
        by="origin",
        fields={"origin_name": "name", "origin_timezone": "timezone"},
    ),
    Lookup(
        "depots.destination",
        dimension="depots",
        by="destination",
        fields={
            "destination_name": "name",
            "destination_timezone": "timezone",
            "destination_latitude_degrees": "latitude_degrees",
            "destination_longitude_degrees": "longitude_degrees",
            "destination_altitude_feet": "altitude_feet",
        },
    ),
    Lookup(
        "vans",
        dimension="vans",
        by="van_id",
        fields={
            "van_built_year": "built_year",
            "van_manufacturer": "manufacturer",
            "van_model": "model",
            "van_engines": "engines",
            "van_seats": "seats",
            "van_engine_type": "engine_type",
        },
    ),
)


@pipeline(dispatches=topics.PARCELS_DISPATCHED, writes=topics.PARCELS_DISPATCHED_ENRICHED, lookups=LOOKUPS)
def dispatches_enriched(dispatches: DataFrame) -> DataFrame:
    """The frame holds the looked-up fields already. Compute other fields here, with expressions."""
    return dispatches
