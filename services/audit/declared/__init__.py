"""What the pipelines look up, let through and count, said a second time beside Spark's code."""
