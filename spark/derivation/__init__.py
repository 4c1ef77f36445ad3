"""What a pipeline makes of raw records, and whether its function is fit for that."""
