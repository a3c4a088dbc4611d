"""Multi-level visual mapping: the cells of several layers in one common space."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize


class MultiLevelEncoder(nn.Module):
    """Three 1 x 1 convolutions for each level of a frozen backbone, with LeakyReLU between them, and l2.

    Akbari et al., "Multi-level multimodal common semantic space for image-phrase grounding", CVPR 2019, section 3.1.
    Its features, of the kind MultiLevel, are bilinearly at M x M cells already, level by level. The paper does not say
    whether a LeakyReLU follows the last convolution; none does here, as in its textual mapping.

    Args:
        input_dim: D, channels of the widest level; the narrower ones are filled with zeros.
        dim: d, of the common space.
        levels: L.
        slope: alpha of LeakyReLU.

    Shape:
        features (B, L N, D), mask (B, L N) bool -> (B, L, N, d), N = M x M cells, of unit norm; zero where the mask
        is false.
    """

    def __init__(self, input_dim: int = 512, dim: int = 1024, levels: int = 4, slope: float = 0.25) -> None:
        super().__init__()
        self.levels = nn.ModuleList(_three_layers(input_dim, dim, slope) for _ in range(levels))

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        levels = len(self.levels)
        if features.shape[1] % levels:
            raise ValueError(
                f"features {tuple(features.shape)} have {features.shape[1]} cells, no multiple of {levels} levels: "
                "extract features of the kind MultiLevel, and set levels to the number of its layers"
            )
        by_level = features.unflatten(1, (levels, -1)).unbind(dim=1)
        mapped = [level(own) for level, own in zip(self.levels, by_level, strict=True)]
        present: Tensor = mask.unflatten(1, (levels, -1)).unsqueeze(3)
        cells: Tensor = normalize(torch.stack(mapped, dim=1), dim=3) * present
        return cells


def _three_layers(input_dim: int, dim: int, slope: float) -> nn.Sequential:
    last = nn.Linear(dim, dim)
    # That of the text encoder begins the same, and far from zero: cosines are positive then, and stay so while the
    # first steps learn to tell cells apart; attention is a ReLU, and what it does not let through does not learn.
    nn.init.constant_(last.bias, 4 * dim**-0.5)
    return nn.Sequential(nn.Linear(input_dim, dim), nn.LeakyReLU(slope), nn.Linear(dim, dim), nn.LeakyReLU(slope), last)
