"""Calibration of scores: the probability that a result is relevant."""
