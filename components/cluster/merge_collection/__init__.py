"""Cluster step that merges the shards of ``embed_collection`` into one collection."""
