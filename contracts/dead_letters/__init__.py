"""Dead letters: how they are made, read, sent back and given up."""
