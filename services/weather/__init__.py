"""Publishes the hourly weather of New York's three airports."""
