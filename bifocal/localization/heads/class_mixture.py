"""Pointing head that mixes the rows of a backbone's classifier."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bifocal.backbones.classes import Classes, imagenet_classes, read_classes
from bifocal.onnx.pointing.head import HeadValues
from bifocal.registry import CheckedByConstruction
from bifocal.text.transformer.folder import TransformerFolder, find_folder


@dataclass(frozen=True)
class ClassMixture(HeadValues, CheckedByConstruction):
    """A phrase is a mixture of the classes that a backbone was trained on.

    A sentence encoder compares the phrase with the names and the definitions of the classes. The
    softmax of the similarities mixes the class probabilities of every cell of the last map before
    its pooling, whose logits are softened::

        similarity_k = mean of the cosines of {phrase, "a photo of a {phrase}"}
                       with {the nearest synonym of class k, the definition of class k}
        weights      = softmax(similarity / temperature)
        map          = weights . softmax(logits / 6)          of each cell
        presence     = log(weights . mean over cells of softmax(logits / 2))

    ImageNet has no class of people: the words "person", "man", "woman" and "child" are further
    synonyms of its clothes. Mixing classes by the similarity of their names follows Norouzi et al.,
    "Zero-shot learning by convex combination of semantic embeddings", ICLR 2014, eq. (2), who mix
    vectors of an image's classes. The logits of cells are the maps of Zhou et al., "Learning deep
    features for discriminative localization", CVPR 2016, eq. (2). The map is standardized,
    smoothed, and has a prior of the center as ``SmoothedActivations``. Maps of several sizes of the
    image are summed. The equations are in ``bifocal.onnx.pointing.head``.

    The calibration assumes that half of the phrases are in their image. Its values were fitted on
    EfficientNet-Lite2, all-MiniLM-L6-v2, and photographs of COCO and Flickr8k, see
    ``docs/pointing.md``.

    Neither captions nor boxes are used. Without a sentence encoder, phrases match names and
    definitions by their words.

    Args:
        path: folder of the sentence encoder, as sentence-transformers saves it.
        model: name of the sentence encoder on the Hugging Face hub, instead of ``path``.
        classes: safetensors file with names, definitions and rows of a classifier, see
            ``read_classes``; None for the 1,000 classes of ImageNet and the backbone's own
            classifier.
        sizes: sides of the square images in pixels, multiples of 32.
        temperature: of the softmax over classes.
        sigma: standard deviation of the Gaussian that smooths a map, in cells.
        center: weight of the prior of the center, in standard deviations at the middle of an edge.
        slope: of the logistic calibration of the presence.
        offset: of the logistic calibration of the presence.
        threshold: least probability of a phrase that is shown; 0 shows every phrase.

    Raises:
        ValueError: a value is out of range, or ``path`` and ``model`` are both given.

    Example:
        >>> ClassMixture(sizes=(448, 640, 896)).sizes
        (448, 640, 896)
    """

    path: str | Path | None = None
    model: str | None = None
    classes: str | Path | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(self.sizes))
        super().__post_init__()
        for problem in self._problems():
            raise ValueError(problem)

    def _problems(self) -> Iterator[str]:
        if self.path is not None and self.model is not None:
            yield f"model {self.model!r} and path {str(self.path)!r} are both given: leave one out"
        if self.temperature <= 0 or self.sigma < 0 or self.center < 0:
            yield (
                f"temperature is {self.temperature}, sigma {self.sigma} and center "
                f"{self.center}: expected a positive temperature, and 0 or more"
            )
        if not 0 <= self.threshold <= 1:
            yield f"threshold is {self.threshold}: expected a probability"

    def sentence_encoder(self) -> TransformerFolder | None:
        """Return the files of the sentence encoder, downloaded if they are on a hub; None for
        words."""
        return (
            None if self.path is None and self.model is None else find_folder(self.model, self.path)
        )

    def class_texts(self) -> Classes:
        """Return the names and definitions of the classes, and the rows of their classifier if a
        file has them."""
        return imagenet_classes() if self.classes is None else read_classes(Path(self.classes))

    def values(self) -> Mapping[str, Any]:
        """Return the numbers that ``bifocal.onnx.pointing.PointingHead`` reads."""
        return {entry.name: getattr(self, entry.name) for entry in fields(HeadValues)}
