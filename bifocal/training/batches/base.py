"""Base class of the batch samplers, and the data that they draw from."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Generator, Tensor, nn

from bifocal.batch import BatchSource, ImageCaptionPairs
from bifocal.datasets import Dataset
from bifocal.features import FeatureStore
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import FittedVectorizer
from bifocal.training.pairs import PhraseBoxPairs
from bifocal.training.validators.base import Validator

Sampler = Callable[[int], Sequence[Tensor]]
"""``sampler(epoch)`` returns the rows of each batch of an epoch, counted from 0, in order.

It is called once, when the epoch begins, so it may mine with the current model. A resumed epoch keeps its batches.
"""


@dataclass
class TrainingInputs:
    """Dataset, features and text of a training.

    Attributes:
        dataset: all splits; "train" is trained on, "val" chooses the epoch.
        features: regions of every image.
        text: every caption, vectorized.
        vectorizer: vectorizes phrases, which are in no store.
    """

    dataset: Dataset
    features: FeatureStore
    text: TextStore
    vectorizer: FittedVectorizer
    _captions: dict[str, ImageCaptionPairs] = field(default_factory=dict, init=False, repr=False)
    _phrases: dict[str, PhraseBoxPairs] = field(default_factory=dict, init=False, repr=False)

    def captions(self, split: str) -> ImageCaptionPairs:
        """Return the images of a split with their captions."""
        if split not in self._captions:
            self._captions[split] = ImageCaptionPairs(self.dataset.split(split), self.features, self.text)
        return self._captions[split]

    def phrases(self, split: str) -> PhraseBoxPairs:
        """Return the phrases of a split with their boxes."""
        if split not in self._phrases:
            self._phrases[split] = PhraseBoxPairs(self.dataset.split(split), self.features, self.vectorizer)
        return self._phrases[split]


@dataclass(frozen=True)
class PreparedBatches:
    """Batches that are ready to train on.

    Attributes:
        source: reads the rows of a batch.
        sampler: draws the rows of the batches of each epoch.
        validator: measures the model after each epoch.
    """

    source: BatchSource
    sampler: Sampler
    validator: Validator


class Batches(ABC):
    """Choice of the examples that share a batch: base of the parts of ``bifocal.training.batches``.

    Attributes:
        batch_size: examples per batch; the class says what an example is.
        monitor: metric of the validator that chooses the epoch.
    """

    batch_size: int
    monitor: ClassVar[str]

    @abstractmethod
    def prepare(self, inputs: TrainingInputs, *, model: nn.Module, loss: nn.Module, seed: int) -> PreparedBatches:
        """Return the batches of the split "train" and the validator of the split "val".

        Args:
            inputs: dataset, features and text.
            model: the model in training, for samplers that mine with it.
            loss: the loss of the phase, for samplers that mine with its margin.
            seed: of all random draws.
        """

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterable[str]:
        """Explain arguments that the constructor rejects."""
        try:
            cls(**arguments)
        except ValueError as error:
            yield str(error)


def check_positive(**values: int) -> None:
    """Raise ``ValueError`` if a value is below 1."""
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name} is {value}: expected 1 or more")


def epoch_generator(seed: int, epoch: int) -> Generator:
    """Return the random number generator of one epoch."""
    return Generator().manual_seed(seed * 10_007 + epoch)
