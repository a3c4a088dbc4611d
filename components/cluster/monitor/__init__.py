"""Compare a week with the training."""
