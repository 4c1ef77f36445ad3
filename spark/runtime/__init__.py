"""The Spark session, settings, leases and metrics; it knows nothing of topics."""
