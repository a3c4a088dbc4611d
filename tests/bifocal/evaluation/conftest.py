"""Subject of the evaluators' tests."""

import pytest

from bifocal.evaluation.base import Subject
from tests.bifocal.evaluation.small import INPUTS, read_subject, write_inputs


@pytest.fixture(scope="session")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """Test split of small scenes with an untrained SMILE."""
    folder = tmp_path_factory.mktemp("inputs")
    for name in INPUTS:
        (folder / name).mkdir()
    write_inputs({name: folder / name for name in INPUTS})
    return read_subject(folder)
