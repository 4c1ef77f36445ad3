"""What the state of an aggregate or a join holds: read from its checkpoint, and written nowhere."""
