"""The audit of joins."""
