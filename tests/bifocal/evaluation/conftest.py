"""Subject of the evaluators' tests."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from bifocal.evaluation.base import Subject
from bifocal.image_encoders import MultiLevelEncoder
from bifocal.models import GroundingModel
from bifocal.text_encoders import GRUEncoder
from tests.bifocal.evaluation.small import DIM, INPUTS, WORDS, read_subject, write_inputs


@pytest.fixture(scope="session")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """Test split of small scenes with an untrained SMILE."""
    folder = tmp_path_factory.mktemp("inputs")
    for name in INPUTS:
        (folder / name).mkdir()
    write_inputs({name: folder / name for name in INPUTS})
    return read_subject(folder)


class WordsEncoder(GRUEncoder):
    """Sentences of a GRU, and each word's own vector."""

    def encode_words(self, values: Tensor, lengths: Tensor) -> Tensor:
        present = torch.arange(values.shape[1]) < lengths.unsqueeze(1)
        return normalize(values[..., : self.dim], dim=2) * present.unsqueeze(2)


@pytest.fixture(scope="session")
def grounding_subject(subject: Subject) -> Subject:
    """The same data with an untrained model that scores pairs of images and sentences."""
    torch.manual_seed(0)
    model = GroundingModel(
        MultiLevelEncoder(DIM, 6, levels=1),
        WordsEncoder(WORDS, 6),
        text_format="tokens",
        vocabulary_size=len(subject.text.word_vectors),
    )
    return replace(subject, model=model.eval())
