"""Data that all examples share at the size of the tests."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the examples: the first one trains the backbone, the others open its features."""
    return tmp_path_factory.mktemp("examples")
