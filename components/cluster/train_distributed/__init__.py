"""Step train_distributed: train_embedding on several machines."""
