"""The rules: what they say, and whether a record crosses one."""
