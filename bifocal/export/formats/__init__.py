"""Trained models in the published layouts of other tools, one per module."""
