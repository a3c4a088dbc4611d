"""Build a search index of a collection."""
