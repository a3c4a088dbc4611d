"""Step fetch: user files at a pinned revision."""
