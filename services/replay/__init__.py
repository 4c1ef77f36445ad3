"""The replay of a recorded year: what the replaying services share, and the one-shot that sets their clock."""
