"""Measurement of a pipeline on a sample: time, memory and disk of each stage."""
