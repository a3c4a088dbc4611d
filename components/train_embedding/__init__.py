"""Train a two-branch model."""
