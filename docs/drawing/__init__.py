"""Drawings of the documentation as SVG: the pipeline, and one of each model."""
