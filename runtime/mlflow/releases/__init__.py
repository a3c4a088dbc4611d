"""Releases: a registered version with the collection, the index and the hubness bank of its model."""
