"""The replay of recorded events: what the replaying services share, and the one-shot that sets their clock."""
