"""Targets and losses of the networks that are trained before the embedding; ``bifocal.training``
has the loop."""
