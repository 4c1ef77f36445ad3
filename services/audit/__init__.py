"""The audit: that nothing was lost, doubled, changed or made up on the way, by the records themselves."""
