"""Kubeflow: executor protocol of a step, state and pages of pipeline runs, training jobs."""
