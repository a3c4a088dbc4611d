"""Vectorizers over pretrained language models: the vector of a word depends on its sentence."""
