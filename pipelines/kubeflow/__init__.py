"""Kubeflow: compile the pipeline, submit it, schedule it."""
