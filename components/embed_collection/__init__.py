"""Embed the images of a collection with the exported model."""
