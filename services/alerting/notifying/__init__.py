"""From the topic of alerts to the receivers' webhooks."""
