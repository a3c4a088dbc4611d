"""Pointing heads, one per file: they belong to a pretrained backbone, and need neither captions nor
training."""

from bifocal.localization.heads.class_mixture import ClassMixture
