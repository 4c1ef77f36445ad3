"""A pipeline in Spark's Real-Time Mode."""
