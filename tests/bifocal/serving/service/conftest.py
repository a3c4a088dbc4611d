"""A loaded model as a source, shared by the tests of a file."""

import pytest

from bifocal.serving.service.served_model import ServedModel
from tests.bifocal.serving.runs import LoadedSource


@pytest.fixture(scope="module")
def source(served: ServedModel) -> LoadedSource:
    return LoadedSource(served)
