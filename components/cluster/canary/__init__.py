"""Decide on a candidate by the searches of clients."""
