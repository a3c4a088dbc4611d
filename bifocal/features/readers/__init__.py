"""Readers of published feature files, one format per file."""
