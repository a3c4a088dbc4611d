"""Retrieval between images and captions, and its baselines."""
