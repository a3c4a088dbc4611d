"""BEAN's heatmap against loops over eq. (8)-(9)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from bifocal.features.boxes import cell_boxes
from bifocal.image_encoders import BEANEncoder
from bifocal.localization import BEANHeatmap, bean_heatmaps, class_activation_maps, peak_points
from tests.bifocal.localization.inputs import BACKBONE, draw, draw_float32, pixels


@given(seed=st.integers(0, 2**31), k=st.integers(1, 9))
def test_bean_heatmaps_equal_equations_8_and_9(seed: int, k: int) -> None:
    features, projection, texts = draw(seed, 2, 4, 3), draw(seed + 1, 6, 3), draw(seed + 2, 2, 6)
    heatmaps = bean_heatmaps(class_activation_maps(features, projection), texts, k)
    for image in range(2):
        v = texts[image].tolist()
        largest = sorted(range(6), key=lambda u: -v[u])[:k]
        for cell in range(4):
            g = [
                sum(projection[u, c].item() * features[image, cell, c].item() for c in range(3))
                for u in range(6)
            ]
            assert heatmaps[image, cell].item() == pytest.approx(
                sum(abs(v[u]) * g[u] for u in largest)
            )


def test_invalid_input_is_rejected() -> None:
    for call, expected in (
        (lambda: bean_heatmaps(torch.zeros(1, 4, 3), torch.zeros(1, 2)), "one text"),
        (
            lambda: bean_heatmaps(torch.zeros(1, 4, 3), torch.zeros(1, 3), k=0),
            "at least one dimension",
        ),
    ):
        with pytest.raises(ValueError, match=expected):
            call()


@pytest.mark.parametrize("eval_resize", ["as_is", "stretch", "scale_and_crop"])
def test_bean_heatmap_of_pixels_covers_whole_image(eval_resize: str) -> None:
    torch.manual_seed(0)
    encoder = BEANEncoder(3, 6, maps=5, eval_resize=eval_resize, image_size=96, **BACKBONE).eval()
    batch, texts = pixels((64, 96), (96, 96)), normalize(draw_float32(5, 2, 6), dim=1)
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
        # Eq. (8)-(9) on the encoder's maps before pooling: |v[u]| A[u] G, summed over the three
        # largest v[u].
        (image, _) = encoder.uncropped_views(batch.features.float(), batch.mask)
        maps = encoder.adapt(encoder.backbone_maps(image.unsqueeze(0)))[0]
        largest = texts[0].topk(3)
        expected = (maps @ encoder.projection.weight[largest.indices].T) @ largest.values.abs()
    torch.testing.assert_close(located.scores[0, : len(expected)], expected)
    assert ((peak_points(located) > 0) & (peak_points(located) < 1)).all()
