"""Last step on a cluster: what the run made, into the DVC remote."""
