"""Normalized canonical correlation analysis: an initialization of two affine maps, of captions and
of phrases."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import ClassVar, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.linalg import solve_triangular

from bifocal.image_encoders.base import mean_region
from bifocal.models.base import Model
from bifocal.models.batch import BATCH, ImageCaptionPairs
from bifocal.registry import check_range
from bifocal.training.initialization.base import Initialization
from bifocal.training.inputs import TrainingInputs
from bifocal.training.phrase_pairs import PhraseBoxPairs
from bifocal.training.precision import embedding_cast

Pool = Callable[[Tensor, Tensor], Tensor]
"""Maps features (B, R, D) and their mask (B, R) to the vectors that an affine map reads."""


Eigenvalue = Literal["mean", "largest"]


class PairedBlock(NamedTuple):
    """Images (n, D), all their texts (m, K), and the row (m,) of each text's image."""

    images: Tensor
    texts: Tensor
    image_of_text: Tensor


class Moments(NamedTuple):
    """Means and covariances of the pairs (x, y) of a collection."""

    mean_x: Tensor
    mean_y: Tensor
    xx: Tensor
    yy: Tensor
    xy: Tensor


def cca_projections(
    moments: Moments,
    dim: int,
    *,
    regularization: float = 1e-4,
    eigenvalue: Eigenvalue = "mean",
    power: float = 4.0,
) -> tuple[Tensor, Tensor]:
    """Return projections (dim, D) and (dim, K) with the highest correlations, scaled by
    correlation^``power``.

    Gong et al., IJCV 2014, eq. (3) and section 3.4. ``regularization`` is a fraction of the mean or
    of the largest ``eigenvalue`` of each covariance.
    """
    if dim > min(moments.xy.shape):
        raise ValueError(
            f"dim is {dim}, but {tuple(moments.xy.shape)} gives {min(moments.xy.shape)} "
            "directions: lower it"
        )
    if len(moments.xx) > len(moments.yy):  # the eigenvectors of the smaller side take less time
        swapped = Moments(moments.mean_y, moments.mean_x, moments.yy, moments.xx, moments.xy.T)
        b, a = cca_projections(
            swapped, dim, regularization=regularization, eigenvalue=eigenvalue, power=power
        )
        return a, b
    roots = [_cholesky(part, regularization, eigenvalue) for part in (moments.xx, moments.yy)]
    # Inverse Cholesky factors are inverse symmetric roots times rotations, which change none of the
    # directions.
    white = solve_triangular(
        roots[1], solve_triangular(roots[0], moments.xy, upper=False).T, upper=False
    ).T
    squares, vectors = torch.linalg.eigh(white @ white.T)  # in half of the time of an SVD
    correlations, left = squares[-dim:].flip(0).clamp(0, 1).sqrt(), vectors[:, -dim:].flip(1)
    # A correlation below 1e-7 of the largest is rounding error. Its directions become 0.
    correlations = torch.where(correlations > 1e-7 * correlations[0], correlations, 0)
    right = white.T @ left / torch.where(correlations > 0, correlations, torch.inf)
    scale = torch.where(correlations > 0, correlations**power, 0)
    a, b = (
        scale * solve_triangular(r.T, side, upper=True)
        for r, side in zip(roots, (left, right), strict=True)
    )
    return a.T, b.T


def caption_blocks(pairs: ImageCaptionPairs, pool: Pool = mean_region) -> Iterator[PairedBlock]:
    """Yield the pooled images of a split with their captions: every caption forms a pair with its
    image."""
    order = pairs.image_of_caption.argsort(stable=True)
    ends = pairs.image_of_caption.bincount(minlength=len(pairs.image_ids)).cumsum(0)
    start = 0
    for number, regions in enumerate(pairs.image_batches(BATCH)):
        first, end = number * BATCH, int(ends[min((number + 1) * BATCH, len(ends)) - 1])
        captions = order[start:end]
        start = end
        images = pool(regions.features.double(), regions.mask)
        yield PairedBlock(
            images, pairs.caption_text(captions).values, pairs.image_of_caption[captions] - first
        )


def _standardized(moments: Moments, norm: nn.BatchNorm1d) -> Moments:
    """Set the statistics of ``norm`` to those of x; return the moments of its output."""
    variance = moments.xx.diagonal()
    with torch.no_grad():
        assert norm.running_mean is not None
        assert norm.running_var is not None
        norm.running_mean.copy_(moments.mean_x)
        norm.running_var.copy_(variance)
    scale = (variance + norm.eps).rsqrt()
    return moments._replace(
        mean_x=torch.zeros_like(moments.mean_x),
        xx=moments.xx * scale.outer(scale),
        xy=moments.xy * scale.unsqueeze(1),
    )


def _projection(encoder: nn.Module) -> nn.Linear:
    projection = getattr(encoder, "projection", None)
    if not isinstance(projection, nn.Linear) or projection.bias is None:
        raise ValueError(
            f"{type(encoder).__name__} is not an affine map of its input: use LinearEncoder"
        )
    return projection


def _moments(blocks: Iterable[PairedBlock], device: torch.device) -> tuple[Moments, int]:
    count, sums = 0, list[Tensor]()
    for block in blocks:
        x, y = block.images.to(device, torch.float64), block.texts.to(device, torch.float64)
        image = block.image_of_text.to(device)
        weights = image.bincount(minlength=len(x)).unsqueeze(1)  # texts of each image
        texts = y.new_zeros(len(x), y.shape[1]).index_add_(0, image, y)
        # An image is multiplied once, not once per text.
        new = [(weights * x).sum(dim=0), y.sum(dim=0), (weights * x).T @ x, y.T @ y, x.T @ texts]
        sums = [total.add_(term) for total, term in zip(sums, new, strict=True)] if sums else new
        count += len(y)
    if not count:
        raise ValueError("there are no pairs of images and texts to fit to")
    mean_x, mean_y, xx, yy, xy = (total / count for total in sums)
    xx, yy, xy = xx - mean_x.outer(mean_x), yy - mean_y.outer(mean_y), xy - mean_x.outer(mean_y)
    return Moments(mean_x, mean_y, xx, yy, xy), count


def _cholesky(covariance: Tensor, regularization: float, eigenvalue: Eigenvalue) -> Tensor:
    of_mean = eigenvalue == "mean"
    unit = covariance.diagonal().mean() if of_mean else torch.linalg.eigvalsh(covariance)[-1]
    ridge = regularization * unit * torch.eye(len(covariance)).to(covariance)
    root: Tensor
    root, failure = torch.linalg.cholesky_ex(covariance + ridge)
    if failure:
        raise ValueError(
            f"regularization is {regularization}, but a covariance is singular: a dimension is "
            "constant, or there are fewer images or texts than dimensions. Set a "
            "regularization above 0, such as 1e-4"
        )
    return root


class CCA(Initialization):
    """Normalized canonical correlation analysis of the training images and captions, for affine
    maps at both ends.

    Gong, Ke, Isard, Lazebnik, "A multi-view embedding space for modeling internet images, tags, and
    their semantics", IJCV 2014, eq. (3) and section 3.4; Klein et al., CVPR 2015, over Fisher
    vectors: a baseline of Wang, Li, Lazebnik, CVPR 2016, table 1. The fit is in closed form, in
    blocks; with ``phases: []`` it is the result.

    Args:
        regularization: value added to the variances, as a fraction of ``eigenvalue``; the papers
            state none. The public code of Plummer et al. has 1e-4 of the "largest", and power 1.
        eigenvalue: of each covariance: "mean", which is the mean variance, or "largest".
        power: p, exponent of the correlations that scale the projections.

    Example:
        >>> CCA(power=4.0).power
        4.0
    """

    encoders: ClassVar[Collection[str]] = ("LinearEncoder", "LastLayersEncoder")

    def __init__(
        self, regularization: float = 1e-4, eigenvalue: Eigenvalue = "mean", power: float = 4.0
    ) -> None:
        check_range("[0, inf)", regularization=regularization, power=power)
        self.regularization, self.eigenvalue, self.power = regularization, eigenvalue, power

    def fit(self, model: Model, blocks: Iterable[PairedBlock]) -> dict[str, float]:
        """Fit the affine maps of both encoders by CCA, block by block; return the number of pairs
        and mean correlation.

        An image encoder with a batch norm ``standardize`` before its map gets the statistics of the
        images. If features or texts have fewer dimensions than the maps, the remaining values of a
        vector are 0.
        """
        image, text = (
            _projection(encoder) for encoder in (model.image_encoder, model.text_encoder)
        )
        moments, count = _moments(blocks, model.device)
        norm = getattr(model.image_encoder, "standardize", None)
        if norm is not None:
            moments = _standardized(moments, norm)
        directions = min(image.out_features, *moments.xy.shape)
        a, b = cca_projections(
            moments,
            directions,
            regularization=self.regularization,
            eigenvalue=self.eigenvalue,
            power=0.0,
        )
        # Projections of the unscaled maps have unit variances, but for the regularization.
        correlations = (a @ moments.xy * b).sum(dim=1).clamp(0, 1)
        with torch.no_grad():
            for layer, projection, mean in ((image, a, moments.mean_x), (text, b, moments.mean_y)):
                projection = correlations.unsqueeze(1) ** self.power * projection
                # Cosines ignore a common factor. Without it the squares of small values would
                # underflow in float32.
                projection = projection / projection.norm(dim=1).max()
                layer.weight.zero_()
                layer.bias.zero_()
                layer.weight[:directions] = projection
                layer.bias[:directions] = -projection @ mean
        return {"pairs": float(count), "mean_correlation": correlations.mean().item()}

    def apply(self, model: Model, inputs: TrainingInputs, *, seed: int) -> dict[str, float]:
        model.eval()
        with torch.inference_mode(), embedding_cast(model, inputs.precision):
            blocks = caption_blocks(
                inputs.captions("train"), cast(Pool, model.image_encoder.pooled)
            )
            return self.fit(model, blocks)


class PhraseCCA(CCA):
    """Normalized canonical correlation analysis of ground-truth boxes and their phrases, for two
    linear encoders.

    Plummer et al., "Flickr30k Entities", ICCV 2015: a baseline of Wang, Li, Lazebnik, CVPR 2016,
    table 3. See ``CCA``. The features hold ground-truth boxes (``truth_regions`` of ``Proposals``
    or of ``ImageArrays``).

    Args:
        boxes_per_phrase: boxes of a phrase in the training set, at most, as for ``PhraseBoxes``.
        regularization: value added to the variances, as a fraction of ``eigenvalue``; the papers
            state none. The public code of Plummer et al. has 1e-4 of the "largest", and power 1.
        eigenvalue: of each covariance: "mean", which is the mean variance, or "largest".
        power: p, exponent of the correlations that scale the projections.

    Example:
        >>> PhraseCCA().boxes_per_phrase
        10
    """

    encoders: ClassVar[Collection[str]] = ("LinearEncoder",)

    def __init__(
        self,
        boxes_per_phrase: int = 10,
        regularization: float = 1e-4,
        eigenvalue: Eigenvalue = "mean",
        power: float = 4.0,
    ) -> None:
        check_range("[1, inf)", boxes_per_phrase=boxes_per_phrase)
        super().__init__(regularization, eigenvalue, power)
        self.boxes_per_phrase = boxes_per_phrase

    def apply(self, model: Model, inputs: TrainingInputs, *, seed: int) -> dict[str, float]:
        pairs = inputs.phrases("train")
        return self.fit(model, phrase_blocks(pairs, pairs.resampled(self.boxes_per_phrase)))


def phrase_blocks(pairs: PhraseBoxPairs, positives: Tensor) -> Iterator[PairedBlock]:
    """Yield boxes with their phrases; ``positives`` (n, 2) are rows of phrases and numbers of their
    boxes."""
    for rows in positives[positives[:, 1].argsort(stable=True)].split(BATCH):
        boxes, image = rows[:, 1].unique(return_inverse=True)
        features = pairs.boxes(boxes).features[:, 0]
        yield PairedBlock(features, pairs.texts(rows[:, 0]).values, image)
