"""Synthetic photograph-like scenes: no download is needed."""
