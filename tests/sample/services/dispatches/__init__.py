"""A name that the contracts of the parcels may name as a producer."""
