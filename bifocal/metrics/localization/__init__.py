"""Metrics of where something is: boxes, points and masks."""
