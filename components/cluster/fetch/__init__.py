"""First step on a cluster: the user's files at a pinned revision."""
