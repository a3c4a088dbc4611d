"""The static copy of a run."""

from pathlib import Path

import pytest

from bifocal.serving.service.models import SearchModel
from bifocal.serving.site.writer import SiteReport
from tests.bifocal.serving.site.static_copy import write_copy


@pytest.fixture(scope="package")
def copied(
    run_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, SearchModel, SiteReport]:
    """The static copy, the served model, and the report of the copy."""
    return write_copy(run_folder, tmp_path_factory.mktemp("copied"))
