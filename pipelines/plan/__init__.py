"""Plan of a pipeline: downloads, artifacts, memory, steps and hours, from its parameters alone."""
