"""The contract files as models: topics, dimensions, examples, and what the pipelines declare."""
