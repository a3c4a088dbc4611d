"""Data of a training: dataset, features and text."""

from dataclasses import dataclass, field

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore
from bifocal.models.batch import ImageCaptionPairs
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import FittedVectorizer
from bifocal.training.pairs import PhraseBoxPairs


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
    _captions: dict[tuple[str, int | None], ImageCaptionPairs] = field(default_factory=dict, init=False, repr=False)
    _phrases: dict[str, PhraseBoxPairs] = field(default_factory=dict, init=False, repr=False)

    def captions(self, split: str, images: int | None = None) -> ImageCaptionPairs:
        """Return the images of a split with their captions.

        Args:
            images: number of images, the first ones of the split; None for all.
        """
        if (split, images) not in self._captions:
            dataset = self.dataset.split(split).first(images)
            self._captions[split, images] = ImageCaptionPairs(dataset, self.features, self.text)
        return self._captions[split, images]

    def phrases(self, split: str) -> PhraseBoxPairs:
        """Return the phrases of a split with their boxes."""
        if split not in self._phrases:
            self._phrases[split] = PhraseBoxPairs(self.dataset.split(split), self.features, self.vectorizer)
        return self._phrases[split]
