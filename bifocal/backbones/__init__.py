"""Backbones: networks that turn pixels into feature maps, and their weights."""
