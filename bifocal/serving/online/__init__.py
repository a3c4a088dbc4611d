"""Comparison of two releases on the searches of real clients: counts, confidence intervals, report."""
