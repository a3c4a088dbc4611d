"""A loaded model as a source, shared by the tests of a file."""

import pytest

from bifocal.serving.service.models import SearchRelease
from tests.bifocal.serving.runs import LoadedSource


@pytest.fixture(scope="module")
def source(served: SearchRelease) -> LoadedSource:
    return LoadedSource(served)
