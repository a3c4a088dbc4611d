"""Backbones of timm: their input, tokens, last layers and use inside a trained encoder."""
