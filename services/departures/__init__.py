"""Publishes every flight that left New York, every one that never did, and before that the gate of each."""
