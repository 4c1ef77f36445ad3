"""The clients of brokers, schema registry and object store, and what makes the servers agree with the contracts."""
