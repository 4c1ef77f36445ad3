"""What is compared, one file for each part of the way: derived topics, lake tables, alerts, dead letters."""
