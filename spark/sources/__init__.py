"""Where a query reads, and from which offset."""
