"""Trains a sorter on synthetic scores: spec.py says what goes in and out, run.py how, README.md the parameters."""
