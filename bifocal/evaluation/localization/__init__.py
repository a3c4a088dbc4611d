"""Pointing at phrases and objects."""
