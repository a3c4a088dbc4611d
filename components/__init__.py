"""Stages of the pipeline, one folder each: ``spec.py`` declares parameters, inputs and outputs,
``run.py`` runs it."""
