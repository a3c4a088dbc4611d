"""Metrics of graded or labeled rankings: average precision, NDCG, correlations."""
