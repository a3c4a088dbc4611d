"""Every source by its name."""

from pathlib import Path

import pytest

from bifocal import registry
from bifocal.datasets.corpora import Scenes
from tests.bifocal.datasets.corpora import NOWHERE

PACKAGE = "bifocal.datasets.corpora"


@pytest.mark.parametrize("name", registry.registered(PACKAGE))
def test_every_source_builds_without_arguments(name):
    source = registry.build(PACKAGE, name)
    if not isinstance(source, Scenes):
        with pytest.raises(ValueError, match=f"{name} needs root: the folder that holds"):
            source.read(NOWHERE)
        with pytest.raises(ValueError, match="is no folder"):
            registry.build(PACKAGE, name, root=Path("/no/such/folder")).read(NOWHERE)
