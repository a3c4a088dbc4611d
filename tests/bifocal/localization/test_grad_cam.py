"""Gradients of the largest products of two embeddings."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bifocal.features import RegionBatch
from bifocal.image_encoders import BEANEncoder, MultiLevelEncoder, RMACEncoder, SMILEEncoder
from bifocal.localization import pair_heatmaps
from tests.bifocal.localization.inputs import BACKBONE, draw, pixels, regions


def test_pair_heatmaps_weight_activations_by_gradient_of_top_dimensions() -> None:
    """The embedding is W mean(A): the gradient of dimension u is W[u] / R in each cell."""
    weights, first, second = draw(0, 6, 3), draw(1, 4, 3), draw(2, 5, 3)

    def embed(activations: Tensor) -> Tensor:
        return weights @ activations.mean(dim=0)

    with torch.inference_mode():
        heatmaps = pair_heatmaps(embed, first, second, k=2)
    contributions = embed(first) * embed(second)
    top = sorted(range(6), key=lambda u: -contributions[u].item())[:2]
    for image, heatmap in zip((first, second), heatmaps, strict=True):
        gradient = (weights[top[0]] + weights[top[1]]) / len(image)
        assert heatmap.tolist() == pytest.approx(
            [max(0.0, float(cell @ gradient)) for cell in image]
        )


def test_invalid_input_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least one dimension"):
        pair_heatmaps(lambda a: a[0], torch.zeros(1, 2), torch.zeros(1, 2), k=0)


@pytest.mark.parametrize(
    ("encoder", "batch"),
    [
        (lambda: SMILEEncoder(3, 6), regions(1)),
        (lambda: BEANEncoder(3, 6, maps=5, backbone=None), regions(1)),
        (lambda: BEANEncoder(3, 6, maps=5, eval_resize="as_is", **BACKBONE), pixels((64, 96))),
        (lambda: RMACEncoder(3, 6, **BACKBONE), pixels((64, 96))),
    ],
)
def test_last_activations_give_embedding_and_heatmaps(
    encoder: Callable[[], nn.Module], batch: RegionBatch
) -> None:
    torch.manual_seed(0)
    network = encoder().eval()
    with torch.inference_mode():
        last = network.last_activations(batch)
        assert last.boxes.shape == (len(last.cells), 4)
        torch.testing.assert_close(
            last.embed(last.cells), network(batch.features.float(), batch.mask)[0]
        )
        first, second = pair_heatmaps(last.embed, last.cells, last.cells, k=2)
    assert first.shape == (len(last.cells),)
    torch.testing.assert_close(first, second)
    assert (first >= 0).all()


def test_last_activations_reject_encoder_with_several_vectors() -> None:
    with pytest.raises(ValueError, match="a MultiLevelEncoder gives several"):
        MultiLevelEncoder(3, 6, levels=1).last_activations(regions(1))
