"""Baselines of the trained systems: fitted in closed form."""

from bifocal.baselines.cca import caption_blocks, cca_projections, fit_cca
