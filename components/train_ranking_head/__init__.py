"""Fit a head over stored features with a rank loss."""
