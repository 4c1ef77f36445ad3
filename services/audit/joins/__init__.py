"""The hop from two raw topics to a join of them: which pairs there must be, and what has none."""
