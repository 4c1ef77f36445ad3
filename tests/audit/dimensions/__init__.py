"""Dimensions that are made of topics: a wrong version is found, and that nothing is found where nothing is wrong."""
