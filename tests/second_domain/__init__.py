"""A fork with another domain: bicycle hires in place of flights, over the machinery as it is."""
