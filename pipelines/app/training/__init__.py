"""Choices of ``bifocal train``: backbone, parameters, image size and epochs."""
