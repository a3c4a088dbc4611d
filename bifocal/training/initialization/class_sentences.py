"""Class probabilities of an image times the sentence vectors of the classes."""

from collections.abc import Collection
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from bifocal.backbones.classes import Classes, class_vectors, imagenet_classes
from bifocal.models.base import Model
from bifocal.models.batch import BATCH
from bifocal.registry import CheckedByConstruction
from bifocal.text.transformer.network import sentence_vectors
from bifocal.text.vectorizers import Concatenated, SentenceVectors
from bifocal.training.initialization.base import Initialization
from bifocal.training.initialization.cca import Pool
from bifocal.training.inputs import TrainingInputs

EXTRACTOR = "PooledLayers"


class ClassSentences(Initialization, CheckedByConstruction):
    """Search without training: an image is the sum of the sentence vectors of its classes.

    An image has the roots r_k of the class probabilities of its backbone, as the extractor
    ``PooledLayers`` stores them; class k has the vector v_k, the normalized sum of the sentence
    vectors of its names and of its definition::

        image    = normalize(sum_k (r_k - mean(r_k)) (v_k - mean(v)))
        sentence = its sentence vector

    The means of r are those of the training images, from which nothing else is learned. This is eq.
    (2) of Norouzi et al., "Zero-shot learning by convex combination of semantic embeddings", ICLR
    2014, with all classes. As one more member of a model, it knows words that no training caption
    has. It helps with few captions and harms with many, so it is left out unless the split "val"
    has a higher recall sum with it.

    Needs the vectorizer ``SentenceVectors``, or ``Concatenated`` with it.

    Example:
        >>> list(ClassSentences.conflicts({}))
        []
    """

    encoders: ClassVar[Collection[str]] = ("LinearEncoder",)
    optional: ClassVar[bool] = True

    def apply(self, model: Model, inputs: TrainingInputs, *, seed: int) -> dict[str, float]:
        classes, (part, start) = imagenet_classes(), _sentence_vectors(inputs.vectorizer.vectorizer)
        vectors = _vectors(classes, part)
        count, width = vectors.shape
        _check_features(inputs.features.metadata, count)
        image, text = (
            cast(nn.Linear, encoder.projection)
            for encoder in (model.image_encoder, model.text_encoder)
        )
        if width > image.out_features:
            raise ValueError(
                f"ClassSentences: dim is {image.out_features}: set it to {width} or more"
            )
        vectors, scale = (vectors - vectors.mean(dim=0)).T, _standardize(model, inputs)
        with torch.no_grad():
            for layer in (image, text):
                layer.weight.zero_()
                layer.bias.zero_()
            image.weight[:width, -count:] = vectors * scale[-count:]
            text.weight[:width, start : start + width] = torch.eye(width)
        return {"classes": float(count)}


def _standardize(model: Model, inputs: TrainingInputs) -> Tensor:
    """Set the statistics of the image encoder to those of the training images; return the
    deviations of channels."""
    norm = model.image_encoder.standardize
    if not isinstance(norm, nn.BatchNorm1d):
        raise ValueError(
            "ClassSentences: the image encoder does not standardize its input: set standardize "
            "to true"
        )
    pool, pairs = cast(Pool, model.image_encoder.pooled), inputs.captions("train")
    with torch.inference_mode():
        sums = [
            (x.sum(dim=0), (x * x).sum(dim=0))
            for x in (
                pool(regions.features.double(), regions.mask)
                for regions in pairs.image_batches(BATCH)
            )
        ]
    mean, square = (
        torch.stack(parts).sum(dim=0) / len(pairs.image_ids) for parts in zip(*sums, strict=True)
    )
    assert norm.running_mean is not None
    assert norm.running_var is not None
    with torch.no_grad():
        norm.running_mean.copy_(mean)
        norm.running_var.copy_((square - mean * mean).clamp_min(0))
    return (norm.running_var + norm.eps).sqrt().cpu()


def _sentence_vectors(vectorizer: Any) -> tuple[SentenceVectors, int]:
    """Return the sentence encoder of a fitted vectorizer, and its first column."""
    start = 0
    for part in vectorizer.fitted_parts if isinstance(vectorizer, Concatenated) else [vectorizer]:
        if isinstance(part, SentenceVectors):
            return part, start
        start += part.format.dim
    raise ValueError(
        f"ClassSentences: {type(vectorizer).__name__} has no SentenceVectors: add it to the "
        "vectorizer"
    )


def _vectors(classes: Classes, part: SentenceVectors) -> Tensor:
    names = [name for synonyms in classes.names for name in synonyms]
    numbers = [number for number, synonyms in enumerate(classes.names) for _ in synonyms]
    synonyms, definitions = (
        sentence_vectors(part.folder, texts).numpy() for texts in (names, classes.definitions)
    )
    return torch.from_numpy(class_vectors(synonyms, np.array(numbers), definitions))


def _check_features(metadata: Any, count: int) -> None:
    """Raise ``ValueError`` unless the last channels are the probabilities of ``count`` classes."""
    from timm import get_pretrained_cfg

    known = get_pretrained_cfg(metadata.get("backbone", ""), allow_unregistered=True)
    own = metadata.get("extractor"), metadata.get("classes"), known.num_classes if known else count
    if own != (EXTRACTOR, True, count):
        raise ValueError(
            f"ClassSentences: extractor {own[0]}, classes {own[1]}, {own[2]} classes: expected "
            f"{EXTRACTOR} with classes of a backbone with the {count} classes of ImageNet"
        )
