"""Fetch a release."""
