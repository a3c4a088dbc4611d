"""Checkpoints of a training: exact resume, SIGTERM, and the hook that copies them elsewhere."""
