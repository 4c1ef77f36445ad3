"""Publishes every hire of a bicycle, when it starts and when it ends."""
