"""Stage register_ranking_head."""
