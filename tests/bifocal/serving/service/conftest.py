"""A loaded model as a source, shared by the tests of a file."""

import pytest

from bifocal.serving.service.models import SearchModel
from tests.bifocal.serving.runs import LoadedSource


@pytest.fixture(scope="module")
def source(served: SearchModel) -> LoadedSource:
    return LoadedSource(served)
