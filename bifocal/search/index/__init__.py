"""The index of a collection: nearest items to a query, exact or approximate."""
