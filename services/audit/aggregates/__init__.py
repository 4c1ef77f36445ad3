"""The hop from a raw topic to an aggregate: what is counted again, and what was not counted."""
