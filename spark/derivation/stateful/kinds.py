"""Which kind of derivation a pipeline with state is: `stateful`."""

from __future__ import annotations

from pyspark.sql import SparkSession

from contracts.definitions.catalog import Catalog
from spark.derivation.stateful.aggregation import Aggregation
from spark.derivation.stateful.deduplication import Deduplication
from spark.derivation.stateful.joining import Joining
from spark.derivation.stateful.ranking import Ranking
from spark.derivation.stateful.remembering import Remembering
from spark.derivation.stateful.stateful_rows import StatefulDerivation
from spark.pipeline import Pipeline


def stateful(spark: SparkSession, pipeline: Pipeline, catalog: Catalog, schema_id: int) -> StatefulDerivation:
    """What it makes of raw records, if it keeps a state. `schema_id` is that of the target's schema. Raises PipelineUnfit."""
    target = catalog.topic(pipeline.target)
    if target.is_join:
        return Joining(spark, pipeline, catalog, schema_id)
    if target.is_sequence:
        return Remembering(spark, pipeline, catalog, schema_id)
    if target.is_ranking:
        return Ranking(spark, pipeline, catalog, schema_id)
    kind = Deduplication if target.is_distinct else Aggregation
    return kind(spark, pipeline, catalog, schema_id)
