"""What runs: a pipeline in each mode, the lake, a repair."""
