"""All calls into Spark's private classes."""
