"""Monitoring of a model in production: drift of queries and images, and its notices."""
