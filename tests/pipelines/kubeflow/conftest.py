"""The default pipeline, compiled."""

import pytest

from tests.pipelines.compiled import Documents, compiled


@pytest.fixture(scope="session")
def default() -> Documents:
    return compiled()
