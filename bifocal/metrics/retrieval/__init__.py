"""Metrics of caption and image retrieval: ranks, recall, protocols, intervals."""
