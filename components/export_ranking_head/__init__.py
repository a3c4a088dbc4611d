"""Stage export_ranking_head."""
