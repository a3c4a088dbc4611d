"""Checkpoints of a training: files, exact resume, SIGTERM, and the hook that copies them elsewhere."""
