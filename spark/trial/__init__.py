"""A pipeline over the records that are there, to see what it would make of them; nothing is written."""
