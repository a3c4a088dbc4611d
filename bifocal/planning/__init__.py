"""Predictions before anything is downloaded: sizes of artifacts, memory, and operations of a training."""
