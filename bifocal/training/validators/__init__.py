"""Validators, one per file: the metric that chooses the epoch."""
