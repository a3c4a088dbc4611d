"""The default pipeline, compiled, and quick compilations."""

from collections.abc import Iterator

import pytest

from tests.pipelines.compiled import Documents, compiled, quick_callers


@pytest.fixture(scope="package", autouse=True)
def quick_compilations() -> Iterator[None]:
    with quick_callers():
        yield


@pytest.fixture(scope="session")
def default() -> Documents:
    return compiled()
