"""Every test computes on one thread: the two workers of 'make test' share two cores."""

import torch
from hypothesis import settings

torch.set_num_threads(1)

# The machine is shared, so a deadline per example would measure the neighbours.
settings.register_profile("bifocal", deadline=None)
settings.load_profile("bifocal")
