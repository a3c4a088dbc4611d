"""Targets and losses of networks that are trained before the embedding."""
