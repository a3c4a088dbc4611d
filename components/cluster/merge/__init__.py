"""Step between the shards of ``extract_features`` and whoever reads features: many stores become one."""
