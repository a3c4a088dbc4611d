"""Fixtures of the step promote, for its commands."""

from tests.components.cluster.conftest import artifacts as artifacts
from tests.components.cluster.conftest import dataset as dataset
from tests.components.cluster.conftest import store as store
