"""What the running stack looks like, for `up` and `status`."""
