"""Normalized canonical correlation analysis, as a two-branch model of two linear maps."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from bifocal.batch import ImageCaptionPairs
from bifocal.embedding import BATCH
from bifocal.image_encoders.pooling import mean_region
from bifocal.models.base import Model


class Moments(NamedTuple):
    """Means and covariances of the pairs (x, y) of a collection."""

    mean_x: Tensor
    mean_y: Tensor
    xx: Tensor
    yy: Tensor
    xy: Tensor


def cca_projections(
    moments: Moments, dim: int, *, regularization: float = 1e-4, power: float = 4.0
) -> tuple[Tensor, Tensor]:
    """Return the projections of x and y with the highest correlations, each scaled by its correlation to ``power``.

    Gong, Ke, Isard, Lazebnik, "A multi-view embedding space for modeling internet images, tags, and their semantics",
    IJCV 2014, eq. (3) and section 3.4: the scores are cosines of the scaled projections ("normalized CCA", p = 4). This
    is the baseline of Wang et al., CVPR 2016.

    Args:
        moments: means and covariances.
        dim: number of projections.
        regularization: value added to the variances, as a fraction of their mean.
        power: p.

    Shape:
        xx (D, D), yy (K, K), xy (D, K) -> (dim, D), (dim, K)

    Raises:
        ValueError: there are fewer than ``dim`` directions.
    """
    if dim > min(moments.xy.shape):
        raise ValueError(
            f"dim is {dim}, but {tuple(moments.xy.shape)} gives {min(moments.xy.shape)} directions: lower it"
        )
    roots = [_inverse_root(part, regularization) for part in (moments.xx, moments.yy)]
    left, correlations, right = torch.linalg.svd(roots[0] @ moments.xy @ roots[1], full_matrices=False)
    scale = correlations[:dim].clamp(max=1) ** power
    return (scale * (roots[0] @ left[:, :dim])).T, (scale * (roots[1] @ right.T[:, :dim])).T


def fit_cca(model: Model, pairs: ImageCaptionPairs, *, regularization: float = 1e-4, power: float = 4.0) -> Model:
    """Fit a model of two ``LinearEncoder`` by canonical correlation analysis.

    Every caption forms a pair with its image. Sums are float64, batch by batch: the features need not fit into memory.

    Args:
        model: model to fit, in place; it is also returned.
        pairs: the training split.
        regularization, power: see ``cca_projections``.

    Raises:
        TypeError: an encoder is not an affine map.
    """
    image, text = (_projection(encoder) for encoder in (model.image_encoder, model.text_encoder))
    moments = _moments(pairs)
    a, b = cca_projections(moments, image.out_features, regularization=regularization, power=power)
    with torch.no_grad():
        for layer, projection, mean in ((image, a, moments.mean_x), (text, b, moments.mean_y)):
            # Cosines ignore a common factor. Without it the squares of small values would underflow in float32.
            projection = projection / projection.norm(dim=1).max()
            layer.weight.copy_(projection)
            layer.bias.copy_(-projection @ mean)
    return model


def _projection(encoder: nn.Module) -> nn.Linear:
    projection = getattr(encoder, "projection", None)
    if not isinstance(projection, nn.Linear) or projection.bias is None:
        raise TypeError(f"{type(encoder).__name__} is not an affine map of its input: use LinearEncoder")
    return projection


def _moments(pairs: ImageCaptionPairs) -> Moments:
    images = torch.cat([mean_region(batch.features.double(), batch.mask) for batch in pairs.image_batches(BATCH)])
    dim = pairs.text.dim
    x_total, y_total = images.new_zeros(images.shape[1]), images.new_zeros(dim)
    xx, yy = images.new_zeros(2 * (images.shape[1],)), images.new_zeros(dim, dim)
    xy = images.new_zeros(images.shape[1], dim)
    start = 0
    for batch in pairs.caption_batches(BATCH):
        y = batch.values.double()
        x = images[pairs.image_of_caption[start : start + len(y)]]
        start += len(y)
        x_total, y_total = x_total + x.sum(dim=0), y_total + y.sum(dim=0)
        xx, yy, xy = xx + x.T @ x, yy + y.T @ y, xy + x.T @ y
    mean_x, mean_y = x_total / start, y_total / start
    return Moments(
        mean_x,
        mean_y,
        xx / start - mean_x.outer(mean_x),
        yy / start - mean_y.outer(mean_y),
        xy / start - mean_x.outer(mean_y),
    )


def _inverse_root(covariance: Tensor, regularization: float) -> Tensor:
    ridge = regularization * covariance.diagonal().mean() * torch.eye(len(covariance), dtype=covariance.dtype)
    values, vectors = torch.linalg.eigh(covariance + ridge)
    root: Tensor = (vectors * values.clamp_min(torch.finfo(values.dtype).tiny).rsqrt()) @ vectors.T
    return root
