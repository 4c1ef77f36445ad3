"""What the pipelines look up and let through, said a second time beside Spark's code."""
