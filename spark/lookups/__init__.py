"""Dimension rows beside the records: versions, broadcasts, joins."""
