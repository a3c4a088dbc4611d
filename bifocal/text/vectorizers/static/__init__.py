"""Vectorizers over static embeddings: one vector per word, whatever its sentence."""
