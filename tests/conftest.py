"""Every test computes on one thread: the two workers of 'make test' share two cores."""

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)

# The machine is shared, so a deadline per example would measure the neighbours.
settings.register_profile("bifocal", deadline=None)
settings.load_profile("bifocal")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of whole pipelines first: they take minutes, and the other worker has the rest meanwhile."""
    items.sort(key=lambda item: "tests/pipelines/" not in item.path.as_posix())
