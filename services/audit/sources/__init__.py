"""What the audit reads: topics and lake tables."""
