"""Baselines that are fitted in closed form, or read from files: what the trained systems are compared with."""

from bifocal.baselines.cca import cca_projections, fit_cca
from bifocal.baselines.precomputed import read_embeddings
