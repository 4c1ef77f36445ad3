"""Publishes every flight from New York that reached its scheduled destination."""
