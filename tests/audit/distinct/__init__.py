"""Distinct events: what is found in them, and that nothing is found where nothing is wrong."""
