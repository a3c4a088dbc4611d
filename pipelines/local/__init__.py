"""Runs of the compiled pipeline on this machine, without a cluster."""
