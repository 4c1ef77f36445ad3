"""Records as columns: decoded, with the headers and the values that they are written with."""
