"""Stage train_ranking_head."""
