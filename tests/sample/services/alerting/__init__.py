"""A service of the platform, which the contracts of the parcels may name."""
