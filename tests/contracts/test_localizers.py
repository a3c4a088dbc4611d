"""Promises of every registered localizer: regions of N images and one text each -> region scores
and boxes."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from bifocal import registry
from bifocal.features import RegionBatch
from bifocal.features.boxes import cell_boxes
from bifocal.image_encoders.base import ImageEncoder
from bifocal.localization import AutoLocalizer, peak_points
from bifocal.localization.base import Localizer

PACKAGE = "bifocal.localization"
ENCODERS: dict[str, dict[str, Any]] = {
    "BEANHeatmap": {"name": "BEANEncoder", "maps": 6, "backbone": None},
    "MultiLevelHeatmap": {"name": "MultiLevelEncoder", "levels": 2},
    "PerRegionLocalizer": {"name": "ProjectionEncoder", "hidden": 5},
    "SMILERegions": {"name": "SMILEEncoder"},
}
"""Image encoders that have a localizer of their own, by its name."""
NEEDS_ONE_VECTOR = ("BEANHeatmap", "PerRegionLocalizer", "SmoothedActivations")
"""Localizers that work with a LinearEncoder."""
LOCALIZERS = sorted(registry.registered(PACKAGE).keys() - {"AutoLocalizer"})
INPUT_DIM, DIM, IMAGES = 5, 6, 3


def encoder_of(name: str) -> dict[str, Any]:
    """Return an image encoder whose regions a localizer reads."""
    return ENCODERS.get(name, {"name": "SMILEEncoder"})


def new_encoder(ref: dict[str, Any]) -> ImageEncoder:
    torch.manual_seed(0)
    encoder: ImageEncoder = registry.build(
        "bifocal.image_encoders", ref, input_dim=INPUT_DIM, dim=DIM
    )
    return encoder.eval()


def new_batch(name: str) -> tuple[RegionBatch, Tensor]:
    """Four cells per image, for each level if there are several, as float16; the last image has
    three."""
    levels = 2 if name == "MultiLevelHeatmap" else 1
    generator = torch.Generator().manual_seed(1)
    mask = torch.ones(IMAGES, 4, dtype=torch.bool)
    mask[-1, -1] = False
    features = torch.randn(IMAGES, 4 * levels, INPUT_DIM, generator=generator).half()
    boxes = cell_boxes(2, 2).repeat(levels, 1).expand(IMAGES, -1, -1)
    texts = normalize(torch.randn(IMAGES, DIM, generator=generator), dim=1)
    return RegionBatch(features, mask.repeat(1, levels), boxes), texts


@pytest.mark.parametrize("name", LOCALIZERS)
class TestEveryLocalizer:
    def test_builds_without_arguments(self, name: str) -> None:
        localizer = registry.build(PACKAGE, name)
        assert isinstance(localizer, Localizer)
        assert localizer.text_context in ("phrase", "sentence")

    def test_is_the_own_localizer_of_its_encoder(self, name: str) -> None:
        encoder = new_encoder(encoder_of(name))
        model = SimpleNamespace(image_encoder=encoder)
        assert (type(AutoLocalizer().for_model(model)).__name__ == name) == (name in ENCODERS)
        localizer = registry.build(PACKAGE, name)
        same = localizer.for_model(model)
        assert (type(same), same.text_context, same.k) == (
            type(localizer),
            localizer.text_context,
            localizer.k,
        )

    def test_scores_every_region_and_no_other(self, name: str) -> None:
        (regions, texts), encoder = new_batch(name), new_encoder(encoder_of(name))
        scores, boxes = registry.build(PACKAGE, name)(encoder, regions, texts)
        assert scores.shape == (IMAGES, 4)
        assert scores.dtype == torch.float32
        assert boxes.shape == (IMAGES, 4, 4)
        assert scores.isfinite().equal(regions.mask[:, :4])
        assert (scores[~regions.mask[:, :4]] == -torch.inf).all()

    def test_points_inside_the_image(self, name: str) -> None:
        (regions, texts), encoder = new_batch(name), new_encoder(encoder_of(name))
        points = peak_points(registry.build(PACKAGE, name)(encoder, regions, texts))
        assert ((points > 0) & (points < 1)).all()

    def test_encodes_once_for_several_texts(self, name: str) -> None:
        (regions, texts), localizer = new_batch(name), registry.build(PACKAGE, name)
        encoder = new_encoder(encoder_of(name))
        vectors, rows = localizer.encode(encoder, regions), torch.tensor([2, 0, 0])
        repeated = RegionBatch(*(part[rows] for part in regions))
        torch.testing.assert_close(
            localizer.score(vectors.of(rows), texts).scores,
            localizer(encoder, repeated, texts).scores,
        )

    def test_scores_images_independently(self, name: str) -> None:
        (regions, texts), localizer = new_batch(name), registry.build(PACKAGE, name)
        encoder = new_encoder(encoder_of(name))
        scores = localizer(encoder, regions, texts).scores
        for row in range(IMAGES):
            alone = localizer(
                encoder,
                RegionBatch(*(part[row : row + 1] for part in regions)),
                texts[row : row + 1],
            )
            torch.testing.assert_close(alone.scores[0], scores[row])

    def test_moves_the_scores_with_the_regions(self, name: str) -> None:
        (regions, texts), localizer = new_batch(name), registry.build(PACKAGE, name)
        encoder, order = new_encoder(encoder_of(name)), torch.tensor([2, 0, 3, 1])
        levels = regions.mask.shape[1] // 4
        columns = torch.cat([order + 4 * level for level in range(levels)])
        moved = localizer(encoder, RegionBatch(*(part[:, columns] for part in regions)), texts)
        torch.testing.assert_close(
            moved.scores, localizer(encoder, regions, texts).scores[:, order]
        )

    def test_reads_words_only_in_the_context_of_a_sentence(self, name: str) -> None:
        (regions, texts), localizer = new_batch(name), registry.build(PACKAGE, name)
        vectors = localizer.encode(new_encoder(encoder_of(name)), regions)
        words = [normalize(torch.rand(2, DIM), dim=1)] * IMAGES
        same = localizer.score(vectors, texts, words).scores.equal(
            localizer.score(vectors, texts).scores
        )
        assert same == (localizer.text_context == "phrase")

    def test_offers_candidates_that_share_its_vectors(self, name: str) -> None:
        (regions, texts), localizer = new_batch(name), registry.build(PACKAGE, name)
        vectors = localizer.encode(new_encoder(encoder_of(name)), regions)
        candidates = localizer.candidates(DIM)
        assert list(candidates) == sorted(candidates)
        assert bool(candidates) == (localizer.k is not None)
        for k, candidate in candidates.items():
            assert candidate.k == k
            assert not candidate.candidates(DIM)
            assert candidate.score(vectors, texts).scores.shape == (IMAGES, 4)

    def test_refuses_an_encoder_of_another_kind(self, name: str) -> None:
        (regions, _), localizer = new_batch(name), registry.build(PACKAGE, name)
        other = "MultiLevelEncoder" if name in NEEDS_ONE_VECTOR else "LinearEncoder"
        with pytest.raises(ValueError, match=rf"{name} needs .*{other}"):
            localizer.encode(new_encoder({"name": other}), regions)
