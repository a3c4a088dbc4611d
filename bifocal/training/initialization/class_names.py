"""The names of an image classifier's classes as first pairs of images and texts."""

from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from bifocal.backbones.classes import imagenet_classes
from bifocal.backbones.state import read_safetensors
from bifocal.image_encoders.pooling import mean_region
from bifocal.models.base import Model
from bifocal.text.vectorizers.base import FittedVectorizer
from bifocal.training.initialization.base import Initialization
from bifocal.training.inputs import TrainingInputs

BATCH = 64


class ClassNames(Initialization):
    """Linear encoders that score the name of an ImageNet class as the backbone's classifier scores the class.

    Romera-Paredes and Torr, "An embarrassingly simple approach to zero-shot learning", ICML 2015, section 3.1, map
    vectors of classes to classifiers by ridge regression. Here the vectorizer of the captions gives the
    vector of each synonym of the 1,000 names, and the targets are the trained weights of the classifier. A text then
    gets a classifier like names with a similar meaning. ImageNet's labels and names are used, and no box. The
    classifier scores cells as well as whole images (Zhou et al., CVPR 2016), so an encoder of cells can point before
    its training, which captions do not teach.

    It needs the cells whose mean the classifier reads: features of ``Grid`` without ``stage``.

    Args:
        path: safetensors file with the weights of the backbone and of its classifier.
        regularization: lambda of the ridge regression, in units of the squared norm of a name's vector.

    Example:
        >>> ClassNames("weights.safetensors", regularization=10.0).regularization
        10.0
    """

    encoders: ClassVar[Collection[str]] = ("LinearEncoder",)

    def __init__(self, path: str | Path, regularization: float = 1.0) -> None:
        if regularization <= 0:
            raise ValueError(f"regularization is {regularization}: expected more than 0")
        self.path, self.regularization = Path(path), regularization

    def apply(self, model: Model, inputs: TrainingInputs, *, seed: int) -> dict[str, float]:
        """Fit the image encoder, and make the text encoder the identity; the seed has no effect."""
        image, text = (_projection(encoder) for encoder in (model.image_encoder, model.text_encoder))
        if text.in_features != text.out_features:
            raise ValueError(f"ClassNames: dim of the model is {text.out_features}: set it to {text.in_features}")
        projection = self.fit(inputs.vectorizer, image.in_features)
        mean = _mean_image(inputs)
        with torch.no_grad():
            image.weight.copy_(projection)
            image.bias.copy_(-projection @ mean)
            text.weight.copy_(torch.eye(text.in_features))
            text.bias.zero_()
        return {}

    def fit(self, vectorizer: FittedVectorizer, channels: int) -> Tensor:
        """Return the map (K, D) float64 from D ``channels`` to vectors of texts, with the scale of random weights."""
        names = imagenet_classes().names
        weights = self._classifier(len(names), channels)
        vectors = vectorizer.vectorize([name for synonyms in names for name in synonyms]).values.double()
        rows = torch.tensor([row for row, synonyms in enumerate(names) for _ in synonyms])
        projection = ridge(vectors, (weights - weights.mean(dim=0))[rows], self.regularization)
        # A cosine ignores a common factor, but a learning rate does not.
        scaled: Tensor = projection / (projection.square().mean().sqrt() * channels**0.5)
        return scaled

    def _classifier(self, classes: int, channels: int) -> Tensor:
        """Return the weights (classes, channels) of the classifier, float64."""
        shape = (classes, channels)
        found = [tensor for tensor in read_safetensors(self.path).values() if tensor.squeeze().shape == shape]
        if len(found) != 1:
            raise ValueError(
                f"ClassNames: {self.path} has {len(found)} tensors of {classes} classes by {channels} channels, "
                "expected one: give the weights of an ImageNet classifier, and extract features with Grid, no stage"
            )
        return found[0].squeeze().double()


def ridge(inputs: Tensor, targets: Tensor, regularization: float) -> Tensor:
    """Return the V (K, D) that minimizes ``|inputs @ V - targets|^2 + regularization |V|^2``.

    Example:
        >>> ridge(torch.tensor([[1.0]]), torch.tensor([[3.0]]), regularization=0.5)
        tensor([[2.]])
    """
    penalty = regularization * torch.eye(inputs.shape[1]).to(inputs)
    solution: Tensor = torch.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ targets)
    return solution


def _projection(encoder: nn.Module) -> nn.Linear:
    projection = getattr(encoder, "projection", None)
    if not isinstance(projection, nn.Linear) or projection.bias is None:
        raise ValueError(f"ClassNames: {type(encoder).__name__} is not an affine map of its input: use LinearEncoder")
    return projection


def _mean_image(inputs: TrainingInputs) -> Tensor:
    """Return the mean feature (D,) of the training images, float64."""
    rows = inputs.features.rows(inputs.dataset.split("train").images["image_id"])
    total = torch.zeros(inputs.features.dim, dtype=torch.float64)
    for regions in inputs.features.batches(rows, BATCH):
        total += mean_region(regions.features.double(), regions.mask).sum(dim=0)
    return total / len(rows)
