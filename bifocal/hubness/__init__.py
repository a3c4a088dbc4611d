"""Hubness corrections, one per file: biases of candidates that are close to too many queries. Needs
no torch."""

from bifocal.hubness.corrections import CSLS, InvertedSoftmax
