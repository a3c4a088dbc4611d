"""Sentences as the arrays of an exported text encoder, without torch: tokens, vocabularies, vectors
of words."""
