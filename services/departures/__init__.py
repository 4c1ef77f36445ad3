"""Publishes every flight that left New York, and every one that never did."""
