"""Kubeflow Pipelines: compile, submit and schedule the pipeline."""
