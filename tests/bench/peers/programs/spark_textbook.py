"""The enrichment as Spark's textbook has it: from Kafka, `from_avro`, four broadcast joins, `to_avro`, to Kafka.

`python -m tests.bench.peers.programs.spark_textbook TASK`, in Headrace's own environment, with Spark's defaults: trigger, heap, parallelism,
producer. At-least-once, which is what Spark's Kafka sink is.

Which settings, and who advises them:

* `readStream`, `writeStream`, checkpoint, headers: Spark's documentation, "Structured Streaming + Kafka Integration Guide".
* Stream-static left joins: Spark's documentation, "Structured Streaming Programming Guide", "Join Operations"; `broadcast`: "SQL Performance Tuning".
* The static side cached: the same page; it would be read again for each batch.
* The first five bytes cut off and put on, because `from_avro` knows no registry: what Spark's users do, for want of a page of Spark's own.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from tests.bench.peers.programs.task import Task, dimension_file, read_task

DIMENSIONS = {
    "airlines": "carrier STRING, name STRING",
    "airports": (
        "airport STRING, name STRING, latitude_degrees DOUBLE, longitude_degrees DOUBLE, altitude_feet INT, timezone STRING"
    ),
    "planes": (
        "tail_number STRING, built_year INT, type STRING, manufacturer STRING, model STRING, engines INT, seats INT, "
        "engine_type STRING"
    ),
}
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
LOOKED_UP = (
    "airline.name AS airline_name",
    "origin_airport.name AS origin_name",
    "origin_airport.timezone AS origin_timezone",
    "destination_airport.name AS destination_name",
    "destination_airport.timezone AS destination_timezone",
    "destination_airport.latitude_degrees AS destination_latitude_degrees",
    "destination_airport.longitude_degrees AS destination_longitude_degrees",
    "destination_airport.altitude_feet AS destination_altitude_feet",
    "plane.built_year AS plane_built_year",
    "plane.manufacturer AS plane_manufacturer",
    "plane.model AS plane_model",
    "plane.engines AS plane_engines",
    "plane.seats AS plane_seats",
    "plane.engine_type AS plane_engine_type",
)


def main() -> None:
    """Enrich until stopped."""
    task = read_task()
    spark = (
        SparkSession.builder.appName("textbook")
        .config("spark.driver.extraClassPath", ":".join(task.jars))
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    headers = ["headers"] if task.low_latency else []
    raw = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", task.brokers)
        .option("subscribe", task.source)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", str(task.low_latency).lower())
        .load()
    )
    departures = raw.select(
        "key", from_avro(F.expr("substring(value, 6)"), task.source_schema).alias("departure"), *headers
    ).select("key", "departure.*", *headers)
    prefix = F.lit(b"\x00" + task.target_schema_id.to_bytes(4, "big"))
    event = F.struct(*[f"departure.{name}" for name in DEPARTURE], *map(F.expr, LOOKED_UP))
    records = joined(spark, task, departures).select(
        "key", F.concat(prefix, to_avro(event, task.target_schema)).alias("value"), *headers
    )
    (
        records.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", task.brokers)
        .option("topic", task.target)
        .option("includeHeaders", str(task.low_latency).lower())
        .option("checkpointLocation", f"{task.work}/checkpoint")
        .start()
        .awaitTermination()
    )


def joined(spark: SparkSession, task: Task, departures: DataFrame) -> DataFrame:
    """Each departure with the rows of its dimensions."""
    airline, airport, plane = (
        F.broadcast(spark.read.schema(columns).json(str(dimension_file(task.dimensions, name))).cache())
        for name, columns in DIMENSIONS.items()
    )
    return (
        departures.alias("departure")
        .join(airline.alias("airline"), F.expr("departure.carrier = airline.carrier"), "left")
        .join(airport.alias("origin_airport"), F.expr("departure.origin = origin_airport.airport"), "left")
        .join(
            airport.alias("destination_airport"), F.expr("departure.destination = destination_airport.airport"), "left"
        )
        .join(plane.alias("plane"), F.expr("departure.tail_number = plane.tail_number"), "left")
    )


if __name__ == "__main__":
    main()
