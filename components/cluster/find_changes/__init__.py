"""Compare the data with the data of the last training."""
