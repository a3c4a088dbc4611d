"""Step fingerprint: versions of the user's files."""
