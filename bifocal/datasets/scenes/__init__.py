"""Photograph-like scenes drawn from a seed: nothing has to be downloaded."""
