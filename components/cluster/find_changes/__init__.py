"""Compare the data with those of the last training."""
