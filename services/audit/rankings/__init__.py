"""Lists of groups, ranked again."""
