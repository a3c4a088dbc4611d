"""Captions against their minimal edits."""
