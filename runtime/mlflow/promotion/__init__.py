"""Promotion of registered models: lock, aliases and journal."""
