"""Broker, registry and S3 server as processes of this machine."""
