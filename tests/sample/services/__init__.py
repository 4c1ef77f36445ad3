"""The services that the contracts of the parcels may name."""
