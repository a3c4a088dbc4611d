"""Recurrent text encoders, which read the vectors of a caption's tokens in order."""
