"""Localizers over pixels, single regions, words of a sentence and pairs of images."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.features import RegionBatch
from bifocal.features.boxes import cell_boxes
from bifocal.image_encoders import BEANEncoder, LinearEncoder, MultiLevelEncoder, RMACEncoder, SMILEEncoder
from bifocal.localization import (
    BEANHeatmap,
    MultiLevelHeatmap,
    PerRegionLocalizer,
    find_phrase,
    pair_heatmaps,
    peak_points,
    phrase_heatmap,
    sentence_heatmap,
)

BACKBONE = {"backbone": "resnet10t", "model_arguments": {"channels": [4, 4, 4, 8], "stem_width": 4}}


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pixels(*sizes: tuple[int, int]) -> RegionBatch:
    """Return images of the given heights and widths, padded with zeros like those of the feature store."""
    side = max(max(size) for size in sizes)
    images, mask = torch.zeros(len(sizes), 3, side, side, dtype=torch.uint8), torch.zeros(len(sizes), side, side).bool()
    for number, (height, width) in enumerate(sizes):
        images[number, :, :height, :width] = (40 * draw(number, 3, height, width) + 128).clamp(0, 255).byte()
        mask[number, :height, :width] = True
    return RegionBatch(images, mask, torch.zeros(len(sizes), 0, 4))


def regions(count: int = 2) -> RegionBatch:
    return RegionBatch(draw(0, count, 4, 3).half(), torch.ones(count, 4).bool(), cell_boxes(2, 2).expand(count, -1, -1))


@pytest.mark.parametrize("eval_resize", ["as_is", "stretch", "scale_and_crop"])
def test_bean_heatmap_of_pixels_covers_whole_image(eval_resize: str) -> None:
    torch.manual_seed(0)
    encoder = BEANEncoder(3, 6, maps=5, eval_resize=eval_resize, image_size=96, **BACKBONE).eval()
    batch, texts = pixels((64, 96), (96, 96)), normalize(draw(5, 2, 6), dim=1)
    with torch.inference_mode():
        located = BEANHeatmap(k=3)(encoder, batch, texts)
        sizes = {
            "as_is": [(2, 3), (3, 3)],
            "stretch": [(3, 3), (3, 3)],
            "scale_and_crop": [(8, 12), (8, 8)],
        }[eval_resize]
        for number, (rows, columns) in enumerate(sizes):
            cells = rows * columns
            assert torch.isfinite(located.scores[number, :cells]).all()
            assert (located.scores[number, cells:] == -torch.inf).all()
            torch.testing.assert_close(located.boxes[number, :cells], cell_boxes(rows, columns))
        # Eq. (8)-(9) on the encoder's maps before pooling: |v[u]| A[u] G, summed over the three largest v[u].
        (image, _) = encoder.uncropped_views(batch.features.float(), batch.mask)
        maps = encoder.adapt(encoder.backbone_maps(image.unsqueeze(0)))[0]
        largest = texts[0].topk(3)
        expected = (maps @ encoder.projection.weight[largest.indices].T) @ largest.values.abs()
    torch.testing.assert_close(located.scores[0, : len(expected)], expected)
    assert ((peak_points(located) > 0) & (peak_points(located) < 1)).all()


def test_per_region_score_equals_score_of_image_with_one_region() -> None:
    encoder, batch, texts = LinearEncoder(3, 6).eval(), regions(), normalize(draw(1, 2, 6), dim=1)
    with torch.inference_mode():
        located = PerRegionLocalizer()(encoder, batch, texts)
        for image in range(2):
            for region in range(4):
                vector = encoder(
                    batch.features[image : image + 1, region : region + 1].float(), torch.ones(1, 1).bool()
                )
                assert located.scores[image, region] == pytest.approx(float(vector[0] @ texts[image]), abs=1e-6)
    for unsupported in (MultiLevelEncoder(3, 6, levels=1), BEANEncoder(3, 6, maps=5, **BACKBONE)):
        with pytest.raises(ValueError, match=type(unsupported).__name__):
            PerRegionLocalizer()(unsupported.eval(), batch, texts)


def test_multi_level_heatmap_uses_words_of_phrase_in_sentence() -> None:
    encoder = MultiLevelEncoder(3, 6, levels=1).eval()
    texts, words = normalize(draw(1, 2, 6), dim=1), normalize(draw(2, 3, 6), dim=1)
    with torch.inference_mode():
        cells = MultiLevelHeatmap().encode(encoder, regions())
        located = MultiLevelHeatmap().score(cells, texts, [words, None])
        torch.testing.assert_close(located.scores[0], phrase_heatmap(words, cells.vectors[0]))
        torch.testing.assert_close(located.scores[1], sentence_heatmap(texts[1], cells.vectors[1]))


def test_find_phrase_returns_position_in_sentence() -> None:
    sentence = ["a", "man", "and", "a", "man", "with", "a", "hat"]
    assert find_phrase(sentence, ["a", "man"]) == slice(0, 2)
    assert find_phrase(sentence, ["a", "man"], 1) == slice(3, 5)
    assert find_phrase(sentence, ["a", "man"], 7) == slice(3, 5)
    assert find_phrase(sentence, ["a", "dog"]) is None
    assert find_phrase(sentence, []) is None


@pytest.mark.parametrize(
    ("encoder", "batch"),
    [
        (lambda: SMILEEncoder(3, 6), regions(1)),
        (lambda: BEANEncoder(3, 6, maps=5, backbone=None), regions(1)),
        (lambda: BEANEncoder(3, 6, maps=5, eval_resize="as_is", **BACKBONE), pixels((64, 96))),
        (lambda: RMACEncoder(3, 6, **BACKBONE), pixels((64, 96))),
    ],
)
def test_last_activations_give_embedding_and_heatmaps(encoder: Callable[[], nn.Module], batch: RegionBatch) -> None:
    torch.manual_seed(0)
    network = encoder().eval()
    with torch.inference_mode():
        last = network.last_activations(batch)
        assert last.boxes.shape == (len(last.cells), 4)
        torch.testing.assert_close(last.embed(last.cells), network(batch.features.float(), batch.mask)[0])
        first, second = pair_heatmaps(last.embed, last.cells, last.cells, k=2)
    assert first.shape == (len(last.cells),)
    torch.testing.assert_close(first, second)
    assert (first >= 0).all()


def test_last_activations_reject_encoder_with_several_vectors() -> None:
    with pytest.raises(ValueError, match="a MultiLevelEncoder gives several"):
        MultiLevelEncoder(3, 6, levels=1).last_activations(regions(1))
