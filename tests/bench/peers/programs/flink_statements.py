"""Flink SQL statements, the last ones of which insert, until stopped.

`python -m tests.bench.peers.programs.flink_statements JSON`, in Flink's own environment; a mini cluster in one JVM, as PyFlink starts it.
The JSON: `options` of Flink's configuration, `tables` to create, `inserts` to run as one job. What they are is said where they are made.
"""

from __future__ import annotations

import json
import sys

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment


def main() -> None:
    """Run until stopped."""
    given = json.loads(sys.argv[1])
    configuration = Configuration()
    for key, value in given["options"].items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(settings)
    for statement in given["tables"]:
        tables.execute_sql(statement)
    statements = tables.create_statement_set()
    for statement in given["inserts"]:
        statements.add_insert_sql(statement)
    statements.execute().wait()


if __name__ == "__main__":
    main()
