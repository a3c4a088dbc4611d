"""Step push: artifacts of a run to the DVC remote."""
