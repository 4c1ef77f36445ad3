"""The documents that are generated from the contracts, never written by hand."""
