"""Publishes the source files of the dimensions as Delta tables, each held to its contract."""
