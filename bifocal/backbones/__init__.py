"""Backbones: networks that map images to feature maps, their preprocessing and the sources of their
weights."""
