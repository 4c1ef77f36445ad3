"""What pipelines with state make of raw records: groups, pairs, distinct events, and events with what was remembered of those before them."""
