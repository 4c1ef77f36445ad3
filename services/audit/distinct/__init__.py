"""The hop from a raw topic to its distinct events: which ones there must be, and which records are left out by rights."""
