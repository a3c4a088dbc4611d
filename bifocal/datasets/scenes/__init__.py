"""Photograph-like scenes drawn from a seed: nothing has to be downloaded."""

from bifocal.datasets.scenes.source import Scenes

__all__ = ["Scenes"]
