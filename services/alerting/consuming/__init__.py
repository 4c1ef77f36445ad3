"""From the topics to acknowledged alerts: consumer group, partitions, offsets."""
