"""Samplers, one per file: which pairs share a batch."""
