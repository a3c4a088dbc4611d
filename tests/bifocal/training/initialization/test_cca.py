"""Canonical correlation analysis against scikit-learn, and as a model; embeddings from files."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import cross_decomposition
from torch.nn.functional import normalize

from bifocal.image_encoders import LinearEncoder as ImageLinear
from bifocal.metrics import retrieval_ranks, summarize
from bifocal.models import TwoBranchModel
from bifocal.models.batch import ImageCaptionPairs, embed
from bifocal.text import TextStore
from bifocal.text.vectorizers import MeanWordVectors
from bifocal.text.vectorizers.base import write_text
from bifocal.text_encoders import LinearEncoder as TextLinear
from bifocal.training.initialization.cca import (
    CCA,
    Eigenvalue,
    Moments,
    PairedBlock,
    caption_blocks,
    cca_projections,
)
from tests.margins import beyond_chance


def views(seed: int = 0, count: int = 400) -> tuple[torch.Tensor, torch.Tensor]:
    """Two noisy views of three hidden numbers."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(count, 3, generator=generator, dtype=torch.float64)
    mix = torch.randn(3, 11, generator=generator, dtype=torch.float64)
    noise = torch.randn(count, 11, generator=generator, dtype=torch.float64)
    both = hidden @ mix + 0.5 * noise + 1.0
    return both[:, :6], both[:, 6:]


def moments(x: torch.Tensor, y: torch.Tensor) -> Moments:
    a, b = x - x.mean(dim=0), y - y.mean(dim=0)
    return Moments(
        x.mean(dim=0), y.mean(dim=0), a.T @ a / len(x), b.T @ b / len(x), a.T @ b / len(x)
    )


def test_cca_has_the_correlations_of_scikit_learn() -> None:
    x, y = views()
    a, b = cca_projections(moments(x, y), 3, regularization=0.0, power=0.0)
    left, right = x.numpy() @ a.numpy().T, y.numpy() @ b.numpy().T
    correlations = [float(np.corrcoef(left[:, k], right[:, k])[0, 1]) for k in range(3)]
    sklearn = cross_decomposition.CCA(n_components=3, max_iter=5000, tol=1e-12)
    reference = sklearn.fit_transform(x.numpy(), y.numpy())
    expected = [float(np.corrcoef(reference[0][:, k], reference[1][:, k])[0, 1]) for k in range(3)]
    assert correlations == pytest.approx(expected, abs=1e-3)


def test_cca_projections_are_white_and_scaled_by_their_correlations() -> None:
    x, y = views()
    covariances = moments(x, y)
    a, b = cca_projections(covariances, 3, regularization=0.0, power=0.0)
    torch.testing.assert_close(a @ covariances.xx @ a.T, torch.eye(3, dtype=torch.float64))
    correlations = torch.diagonal(a @ covariances.xy @ b.T)
    scaled, _ = cca_projections(covariances, 3, regularization=0.0, power=4.0)
    torch.testing.assert_close(scaled.norm(dim=1) / a.norm(dim=1), correlations**4)
    with pytest.raises(ValueError, match="gives 5 directions"):
        cca_projections(covariances, 6)


def root_inverse(covariance: torch.Tensor) -> torch.Tensor:
    values, vectors = torch.linalg.eigh(covariance)
    return vectors @ torch.diag(values.rsqrt()) @ vectors.T


@pytest.mark.parametrize("eigenvalue", ["mean", "largest"])
@pytest.mark.parametrize("swapped", [False, True])
def test_projections_are_those_of_gong_by_symmetric_roots_and_svd(
    swapped: bool, eigenvalue: Eigenvalue
) -> None:
    x, y = reversed(views()) if swapped else views()
    m = moments(x, y)
    xx, yy = (
        part + 0.1 * getattr(torch.linalg.svdvals(part), pick)() * torch.eye(len(part)).double()
        for part in (m.xx, m.yy)
        for pick in [{"mean": "mean", "largest": "max"}[eigenvalue]]
    )
    u, s, v = torch.linalg.svd(root_inverse(xx) @ m.xy @ root_inverse(yy), full_matrices=False)
    a, b = cca_projections(m, 4, regularization=0.1, eigenvalue=eigenvalue, power=2.0)
    for projection, root, side in ((a, root_inverse(xx), u), (b, root_inverse(yy), v.T)):
        expected = (s[:4] ** 2 * (root @ side[:, :4])).T
        torch.testing.assert_close(
            projection * torch.sign(projection[:, :1] * expected[:, :1]), expected
        )
    assert bool((a[:, 0] * b[:, 0]).isfinite().all())


def test_directions_without_correlation_are_0() -> None:
    x, y = views()
    y = torch.stack(
        [y[:, 0], 1 + torch.randn(len(y), generator=torch.Generator().manual_seed(2)).double()],
        dim=1,
    )
    m = moments(x, y)._replace(
        xy=torch.stack([moments(x, y).xy[:, 0], torch.zeros(6).double()], dim=1)
    )
    m = m._replace(yy=torch.diag(m.yy.diagonal()))
    a, b = cca_projections(m, 2, regularization=0.1, power=0.0)
    assert float(a[0].norm()) > 0
    assert float(b[0].norm()) > 0
    assert not a[1].any()
    assert not b[1].any()


def test_singular_covariances_need_a_regularization() -> None:
    x, y = views(count=4)
    with pytest.raises(
        ValueError,
        match=r"regularization is 0\.0, but a covariance is singular.*Set a regularization",
    ):
        cca_projections(
            moments(torch.cat([x, torch.ones(4, 1).double()], dim=1), y), 3, regularization=0.0
        )
    a, b = cca_projections(moments(x, y), 3, regularization=1e-4)
    assert bool(a.isfinite().all() and b.isfinite().all())


def test_fitted_model_has_the_projections_of_all_pairs() -> None:
    x, y = views()
    generator = torch.Generator().manual_seed(1)
    image = torch.randint(30, (len(y),), generator=generator)  # several texts of one image
    model = TwoBranchModel(ImageLinear(6, 3), TextLinear(5, 3), text_format="vectors")
    # Blocks of images in any order, each with all its texts.
    chosen = [torch.tensor(rows) for rows in ([4, 1], list(range(5, 30)), [0, 2, 3])]

    def block(images: torch.Tensor) -> PairedBlock:
        texts = [row for row in range(len(y)) if int(image[row]) in images.tolist()]
        return PairedBlock(
            x[images], y[texts], torch.tensor([images.tolist().index(int(image[t])) for t in texts])
        )

    metrics = CCA(1e-3).fit(model, (block(images) for images in chosen))
    a, b = cca_projections(moments(x[image], y), 3, regularization=1e-3, power=4.0)
    for layer, projection, view in ((model.image_encoder, a, x[image]), (model.text_encoder, b, y)):
        expected = normalize((view - view.mean(dim=0)) @ projection.T, dim=1).float()
        actual = normalize(layer.projection(view.float()), dim=1)
        # The sign of a direction is free, but the same for both views.
        torch.testing.assert_close(actual @ actual.T, expected @ expected.T, rtol=1e-3, atol=1e-4)
    assert metrics["pairs"] == len(y)
    assert 0 < metrics["mean_correlation"] < 1
    with pytest.raises(ValueError, match="no pairs"):
        CCA().fit(model, [])


def test_standardized_images_are_those_of_the_pairs() -> None:
    x, y = views()
    x = 3 + x * torch.linspace(0.1, 5, x.shape[1]).double()
    image = torch.arange(len(y)) % len(x)
    model = TwoBranchModel(
        ImageLinear(6, 3, standardize=True), TextLinear(5, 3), text_format="vectors"
    ).eval()
    CCA(0.5).fit(model, [PairedBlock(x, y, image)])
    paired = x[image]
    deviation = (paired.var(dim=0, unbiased=False) + model.image_encoder.standardize.eps).sqrt()
    scaled = (x - paired.mean(dim=0)) / deviation
    a, _ = cca_projections(moments(scaled[image], y), 3, regularization=0.5, power=4.0)
    expected = normalize(scaled @ a.T, dim=1).float()
    actual = model.image_encoder(x.float().unsqueeze(1), torch.ones(len(x), 1, dtype=torch.bool))
    torch.testing.assert_close(actual @ actual.T, expected @ expected.T, rtol=1e-3, atol=1e-4)


def test_a_model_may_have_more_dimensions_than_texts() -> None:
    x, y = views()
    block, scores = PairedBlock(x, y, torch.arange(len(y))), []
    for dim in (5, 9):  # few captions have few words
        model = TwoBranchModel(
            ImageLinear(6, dim), TextLinear(5, dim), text_format="vectors"
        ).eval()
        CCA(0.5).fit(model, [block])
        images = model.image_encoder(
            x.float().unsqueeze(1), torch.ones(len(x), 1, dtype=torch.bool)
        )
        scores.append(
            images @ model.text_encoder(y.float(), torch.ones(len(y), dtype=torch.int64)).T
        )
    torch.testing.assert_close(scores[1], scores[0], rtol=1e-3, atol=1e-4)


def test_fitted_cca_retrieves_captions(
    pairs: ImageCaptionPairs, stores: tuple, tmp_path: Path
) -> None:
    tables, features, _ = stores
    vectorizer = MeanWordVectors(dim=12)
    vectorizer.fit(tables.captions["text"].tolist(), seed=0)
    write_text(
        tmp_path,
        vectorizer,
        tables.captions["caption_id"].tolist(),
        tables.captions["text"].tolist(),
    )
    mean_words = ImageCaptionPairs(tables, features, TextStore(tmp_path))
    model = TwoBranchModel(ImageLinear(features.dim, 8), TextLinear(12, 8), text_format="vectors")
    metrics = CCA().fit(model, caption_blocks(mean_words))
    assert metrics["pairs"] == len(mean_words)
    report = summarize(
        retrieval_ranks(*embed(model, mean_words), mean_words.image_of_caption), (1,)
    )
    assert report["image_retrieval"]["R@1"] > 100 * beyond_chance(len(mean_words), 1 / 40)
