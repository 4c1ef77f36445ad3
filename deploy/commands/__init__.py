"""The commands of `headrace`. Each imports what it needs itself, so that `--help` is there at once."""
