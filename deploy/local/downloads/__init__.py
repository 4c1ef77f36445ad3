"""Java and the jars, fetched once and shared by all clones."""
