"""Where heatmaps come from and what they are of: pixels, regions alone, words inside a sentence, pairs of images."""

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
    """Images of several heights and widths, filled up with zeros, as the store gives them."""
    side = max(max(size) for size in sizes)
    images, mask = torch.zeros(len(sizes), 3, side, side, dtype=torch.uint8), torch.zeros(len(sizes), side, side).bool()
    for number, (height, width) in enumerate(sizes):
        images[number, :, :height, :width] = (40 * draw(number, 3, height, width) + 128).clamp(0, 255).byte()
        mask[number, :height, :width] = True
    return RegionBatch(images, mask, torch.zeros(len(sizes), 0, 4))


def regions(count: int = 2) -> RegionBatch:
    return RegionBatch(draw(0, count, 4, 3).half(), torch.ones(count, 4).bool(), cell_boxes(2, 2).expand(count, -1, -1))


@pytest.mark.parametrize("eval_resize", ["as_is", "stretch", "scale_and_crop"])
def test_bean_over_pixels_has_a_heatmap_of_each_whole_image(eval_resize: str) -> None:
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
        # Eq. (8)-(9) on the maps that the encoder pools: |v[u]| A[u] G, summed over the three largest v[u].
        (image, _) = encoder.uncropped_views(batch.features.float(), batch.mask)
        maps = encoder.adapt(encoder.backbone_maps(image.unsqueeze(0)))[0]
        largest = texts[0].topk(3)
        expected = (maps @ encoder.projection.weight[largest.indices].T) @ largest.values.abs()
    torch.testing.assert_close(located.scores[0, : len(expected)], expected)
    assert ((peak_points(located) > 0) & (peak_points(located) < 1)).all()


def test_a_region_alone_is_an_image_that_shows_nothing_else() -> None:
    encoder, batch, texts = LinearEncoder(3, 6).eval(), regions(), normalize(draw(1, 2, 6), dim=1)
    with torch.inference_mode():
        located = PerRegionLocalizer()(encoder, batch, texts)
        for image in range(2):
            for place in range(4):
                vector = encoder(batch.features[image : image + 1, place : place + 1].float(), torch.ones(1, 1).bool())
                assert located.scores[image, place] == pytest.approx(float(vector[0] @ texts[image]), abs=1e-6)
    for wrong in (MultiLevelEncoder(3, 6, levels=1), BEANEncoder(3, 6, maps=5, **BACKBONE)):
        with pytest.raises(ValueError, match=type(wrong).__name__):
            PerRegionLocalizer()(wrong.eval(), batch, texts)


def test_a_phrase_inside_a_sentence_has_the_heatmap_of_its_words() -> None:
    encoder = MultiLevelEncoder(3, 6, levels=1).eval()
    texts, words = normalize(draw(1, 2, 6), dim=1), normalize(draw(2, 3, 6), dim=1)
    with torch.inference_mode():
        seen = MultiLevelHeatmap().encode(encoder, regions())
        located = MultiLevelHeatmap().score(seen, texts, [words, None])
        torch.testing.assert_close(located.scores[0], phrase_heatmap(words, seen.vectors[0]))
        torch.testing.assert_close(located.scores[1], sentence_heatmap(texts[1], seen.vectors[1]))


def test_the_words_of_a_phrase_are_found_in_their_sentence() -> None:
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
def test_grad_cam_starts_from_what_makes_the_embedding(encoder: Callable[[], nn.Module], batch: RegionBatch) -> None:
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


def test_grad_cam_needs_one_vector_for_an_image() -> None:
    with pytest.raises(ValueError, match="a MultiLevelEncoder gives several"):
        MultiLevelEncoder(3, 6, levels=1).last_activations(regions(1))
