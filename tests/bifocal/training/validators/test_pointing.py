"""Pointing against the pointing game of evaluation, on grids of cells."""

from dataclasses import replace

import pytest
from torch import nn

from bifocal.evaluation import PointingGame
from bifocal.evaluation.base import Subject
from bifocal.image_encoders import LinearEncoder
from bifocal.localization import SMILERegions
from bifocal.training.inputs import TrainingInputs
from bifocal.training.validators import Pointing
from tests.bifocal.evaluation.small import INPUTS, read_subject, write_inputs


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = tmp_path_factory.mktemp("pointing")
    folders = {name: folder / name for name in INPUTS}
    for path in folders.values():
        path.mkdir()
    write_inputs(folders)
    return read_subject(folder, "val")


def inputs_of(subject: Subject) -> TrainingInputs:
    return TrainingInputs(subject.dataset, subject.features, subject.text, subject.vectorizer)


def test_pointing_is_the_accuracy_of_the_pointing_game(subject: Subject) -> None:
    validator = Pointing().prepare(inputs_of(subject))
    game = PointingGame()(subject).metrics["pointing"]
    for _ in range(2):  # the second call reads the vectorized phrases from memory
        assert validator(subject.model.train()) == {"pointing": pytest.approx(game["accuracy"])}
        assert not subject.model.training


def test_pointing_draws_the_same_phrases_each_time(subject: Subject) -> None:
    count = len(subject.split.phrases)
    first, again = (Pointing(phrases=count - 1, localizer=SMILERegions()).prepare(inputs_of(subject)) for _ in "ab")
    assert first.rows == again.rows
    assert len(set(first.rows)) == count - 1
    with pytest.raises(ValueError, match="phrases is 0: expected 1 or more"):
        Pointing(phrases=0)


def test_pointing_rejects_data_and_models_that_cannot_point(subject: Subject) -> None:
    none = replace(subject.dataset, phrases=subject.dataset.phrases.iloc[:0])
    with pytest.raises(ValueError, match="no phrases with boxes to point at"):
        Pointing().prepare(replace(inputs_of(subject), dataset=none))
    model = nn.Module()
    model.image_encoder = LinearEncoder(4, 4)
    with pytest.raises(TypeError, match="LinearEncoder has no localizer"):
        Pointing().prepare(inputs_of(subject))(model)
