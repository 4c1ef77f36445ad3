"""The enrichment as a user of Apache Flink writes it: PyFlink's Table API, one SQL statement, no Python on the records' way.

`python -m tests.bench.peers.programs.flink_sql TASK`, in Flink's own environment; a mini cluster in one JVM, as PyFlink starts it.

Which settings, and who advises them:

* Dimensions by lookup join (`FOR SYSTEM_TIME AS OF proctime`) with the connector's cache: Flink's documentation, "Joins" (the lookup
  join "is typically used to enrich a table with data that is queried from an external system", its example has the JDBC connector), and
  "JDBC SQL Connector", "Lookup Cache". The database is Derby within the JVM, one of that page's drivers, so a miss costs no way over a
  network; the cache is larger than any dimension and never expires, so each key is asked for once. Not a regular join: "Joins" says that
  its state "might grow infinitely", and it shuffles the stream four times.
* `pipeline.object-reuse`: Flink's documentation, "Configuration" (no copies between chained operators).
* Parallelism: as many as the topic has partitions.
* Checkpoints once a second with both guarantees: the at-least-once sink needs them too ("Kafka SQL Connector", "Consistency
  guarantees"). `sink.transaction-naming-strategy` POOLING: the description of that option (INCREMENTING, the default, "wastes memory of the
  Kafka broker"). `transaction.timeout.ms`: "Apache Kafka Connector", "Fault Tolerance"; the broker allows no more than 15 minutes.
* For a backlog `linger.ms`, `batch.size`, `compression.type` of the producer: as `live` has them.
* For low latency `execution.buffer-timeout.interval` 0 ("triggers flushing after every record thus minimizing latency": "Configuration"),
  and `linger.ms` 0, which is 5 by default since Kafka 4 (Kafka's documentation, "Producer Configs").

Without `tuned` the last three of these, object reuse and the strategy of naming are as Flink has them by default.
"""

from __future__ import annotations

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from tests.bench.peers.programs.task import Task, read_task

DIMENSIONS = {
    "airlines": "carrier STRING, name STRING, PRIMARY KEY (carrier) NOT ENFORCED",
    "airports": (
        "airport STRING, name STRING, latitude_degrees DOUBLE, longitude_degrees DOUBLE, altitude_feet INT, timezone STRING, "
        "PRIMARY KEY (airport) NOT ENFORCED"
    ),
    "planes": (
        "tail_number STRING, built_year INT, `type` STRING, manufacturer STRING, model STRING, engines INT, seats INT, "
        "engine_type STRING, PRIMARY KEY (tail_number) NOT ENFORCED"
    ),
}
DEPARTURE = """
    flight_id STRING NOT NULL,
    carrier STRING NOT NULL,
    flight_number INT NOT NULL,
    tail_number STRING,
    origin STRING NOT NULL,
    destination STRING NOT NULL,
    flight_date DATE NOT NULL,
    scheduled_departure_at TIMESTAMP(3) NOT NULL,
    departed_at TIMESTAMP(3) NOT NULL,
    departure_delay_minutes INT NOT NULL,
    distance_miles INT NOT NULL"""
LOOKED_UP = """
    airline_name STRING,
    origin_name STRING,
    origin_timezone STRING,
    destination_name STRING,
    destination_timezone STRING,
    destination_latitude_degrees DOUBLE,
    destination_longitude_degrees DOUBLE,
    destination_altitude_feet INT,
    plane_built_year INT,
    plane_manufacturer STRING,
    plane_model STRING,
    plane_engines INT,
    plane_seats INT,
    plane_engine_type STRING"""
ENRICH = """
SELECT
    d.flight_id, d.carrier, d.flight_number, d.tail_number, d.origin, d.destination, d.flight_date,
    d.scheduled_departure_at, d.departed_at, d.departure_delay_minutes, d.distance_miles,
    airline.name, origin_airport.name, origin_airport.timezone,
    destination_airport.name, destination_airport.timezone, destination_airport.latitude_degrees,
    destination_airport.longitude_degrees, destination_airport.altitude_feet,
    plane.built_year, plane.manufacturer, plane.model, plane.engines, plane.seats, plane.engine_type{headers}
FROM departed AS d
LEFT JOIN airlines FOR SYSTEM_TIME AS OF d.proctime AS airline ON d.carrier = airline.carrier
LEFT JOIN airports FOR SYSTEM_TIME AS OF d.proctime AS origin_airport ON d.origin = origin_airport.airport
LEFT JOIN airports FOR SYSTEM_TIME AS OF d.proctime AS destination_airport ON d.destination = destination_airport.airport
LEFT JOIN planes FOR SYSTEM_TIME AS OF d.proctime AS plane ON d.tail_number = plane.tail_number
"""


def main() -> None:
    """Enrich by the lookup database, which is there, until stopped."""
    task = read_task()
    tables = TableEnvironment.create(_settings(task))
    for name in DIMENSIONS:
        tables.execute_sql(_lookup_table(task, name))
    tables.execute_sql(_source(task))
    tables.execute_sql(_sink(task))
    statements = tables.create_statement_set()
    statements.add_insert_sql(
        f"INSERT INTO enriched {ENRICH.format(headers=', d.headers' if task.low_latency else '')}"
    )
    statements.execute().wait()


def _settings(task: Task) -> EnvironmentSettings:
    configuration = Configuration()
    options = {
        "pipeline.jars": ";".join(f"file://{jar}" for jar in task.jars),
        "parallelism.default": "2",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": f"file://{task.work}/checkpoints",
        "execution.checkpointing.mode": "EXACTLY_ONCE" if task.exactly_once else "AT_LEAST_ONCE",
    }
    if task.tuned:
        options["pipeline.object-reuse"] = "true"
    if task.tuned and task.low_latency:
        options["execution.buffer-timeout.interval"] = "0 ms"
    for key, value in options.items():
        configuration.set_string(key, value)
    return EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()


def _lookup_table(task: Task, name: str) -> str:
    options = {
        "connector": "jdbc",
        "url": f"jdbc:derby:{task.work}/dimensions;create=true",
        "table-name": name,
        "lookup.cache": "PARTIAL",
        "lookup.partial-cache.max-rows": "100000",
    }
    return f"CREATE TABLE {name} ({DIMENSIONS[name]}) WITH ({_options(options)})"


def _source(task: Task) -> str:
    headers = ", headers MAP<STRING, BYTES> METADATA" if task.low_latency else ""
    options = {
        **_kafka(task, task.source),
        "properties.group.id": task.group,
        "properties.isolation.level": "read_committed",
        "scan.startup.mode": "earliest-offset",
        "format": "avro-confluent",
        "avro-confluent.url": task.registry,
    }
    return f"CREATE TABLE departed ({DEPARTURE}{headers}, proctime AS PROCTIME()) WITH ({_options(options)})"


def _sink(task: Task) -> str:
    headers = ", headers MAP<STRING, BYTES> METADATA" if task.low_latency else ""
    options = {
        **_kafka(task, task.target),
        "key.format": "raw",
        "key.fields": "flight_id",
        "value.format": "avro-confluent",
        "value.avro-confluent.url": task.registry,
        "sink.delivery-guarantee": "exactly-once" if task.exactly_once else "at-least-once",
    }
    if task.tuned:
        options |= {
            "properties.compression.type": "lz4",
            "properties.batch.size": str(256 << 10),
            "properties.linger.ms": "0" if task.low_latency else "5",
        }
    if task.exactly_once:
        options |= {
            "sink.transactional-id-prefix": task.group,
            "properties.transaction.timeout.ms": "900000",
        }
    if task.exactly_once and task.tuned:
        options["sink.transaction-naming-strategy"] = "POOLING"
    return f"CREATE TABLE enriched ({DEPARTURE},{LOOKED_UP}{headers}) WITH ({_options(options)})"


def _kafka(task: Task, topic: str) -> dict[str, str]:
    return {"connector": "kafka", "topic": topic, "properties.bootstrap.servers": task.brokers}


def _options(options: dict[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())


if __name__ == "__main__":
    main()
