"""What the state of a pipeline holds: read from its checkpoint, and written nowhere."""
