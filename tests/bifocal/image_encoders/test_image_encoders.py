"""SMILE and projection encoders against loops over their equations."""

import math

import pytest
import torch
from torch import Tensor

from bifocal.image_encoders import ProjectionEncoder, SMILEEncoder

ABLATIONS = [None, "mean", "scalar", "no_convolution", "no_softmax"]


def unit(vector: list[float]) -> list[float]:
    norm = math.sqrt(sum(value * value for value in vector))
    return [value / norm for value in vector]


def times(matrix: Tensor, vector: list[float]) -> list[float]:
    return [sum(w * x for w, x in zip(row, vector, strict=True)) for row in matrix.tolist()]


def smile(encoder: SMILEEncoder, regions: list[list[float]], ablation: str | None) -> list[float]:
    """Thesis, eq. (3.5)-(3.8), in loops over channels and regions."""
    g = [unit(times(encoder.convolution.weight, region)) for region in regions]
    dim, count = len(g[0]), len(g)
    if ablation == "mean":
        return unit([sum(g[r][k] for r in range(count)) / count for k in range(dim)])
    logits = (
        g
        if encoder.attention is None
        else [times(encoder.attention.weight, region) for region in g]
    )
    x = []
    for k in range(dim):
        row = [logits[r][0 if ablation == "scalar" else k] for r in range(count)]
        if ablation != "no_softmax":
            total = sum(math.exp(value) for value in row)
            row = [math.exp(value) / total for value in row]
        x.append(sum(a * g[r][k] for r, a in enumerate(row)))
    return unit(x)


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_smile_equals_equations(ablation: str | None) -> None:
    torch.manual_seed(0)
    encoder = SMILEEncoder(6, 4, ablation).double()
    features = torch.randn(2, 5, 6, dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True, False, True, True, False]])
    embeddings = encoder(features, mask)
    for row, regions in enumerate(features):
        torch.testing.assert_close(
            embeddings[row].tolist(), smile(encoder, regions[mask[row]].tolist(), ablation)
        )


def test_smile_rejects_unknown_ablation() -> None:
    with pytest.raises(ValueError, match="no ablation 'average'; SMILEEncoder has mean"):
        SMILEEncoder(4, 4, "average")


def test_projection_applies_two_layers_to_mean_of_regions() -> None:
    torch.manual_seed(0)
    encoder = ProjectionEncoder(6, 3, hidden=4).double().eval()
    first, last, norm = encoder.projection[0], encoder.projection[3], encoder.projection[4]
    norm.running_mean.copy_(torch.randn(3))
    norm.running_var.copy_(torch.rand(3) + 0.5)
    features, mask = torch.randn(1, 3, 6, dtype=torch.float64), torch.tensor([[True, True, False]])
    mean = features[0, :2].mean(dim=0).tolist()
    hidden = [
        max(0.0, h + b) for h, b in zip(times(first.weight, mean), first.bias.tolist(), strict=True)
    ]
    x = [h + b for h, b in zip(times(last.weight, hidden), last.bias.tolist(), strict=True)]
    scaled = [
        (x[k] - norm.running_mean[k].item()) / math.sqrt(norm.running_var[k].item() + norm.eps)
        for k in range(3)
    ]
    torch.testing.assert_close(encoder(features, mask)[0].tolist(), unit(scaled))
