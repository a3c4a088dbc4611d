"""Baselines of the trained systems: fitted in closed form, or read from files."""

from bifocal.baselines.cca import caption_blocks, cca_projections, fit_cca
from bifocal.baselines.precomputed import read_embeddings
