"""Cluster step that merges the shards of ``extract_features`` into one feature store."""
