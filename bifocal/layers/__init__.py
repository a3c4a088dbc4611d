"""Layers that encoders of images and of texts share."""
