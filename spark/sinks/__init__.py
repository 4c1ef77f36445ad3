"""Where a query writes: Kafka transactions and Delta tables."""
