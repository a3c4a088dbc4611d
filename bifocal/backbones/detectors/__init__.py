"""Detectors: torchvision's detectors and bottom-up attention."""
