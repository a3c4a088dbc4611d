"""Localization metrics of points, boxes and masks."""
