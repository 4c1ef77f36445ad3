"""What is compared and told: digests of fields, places of records, findings."""
