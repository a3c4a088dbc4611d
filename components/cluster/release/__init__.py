"""Add a release to a registered version."""
