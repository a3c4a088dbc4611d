"""Multi-level visual mapping: the cells of several layers in one joint space."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.image_encoders.base import ImageEncoder
from bifocal.localization.multi_level import MultiLevelHeatmap


class MultiLevelEncoder(ImageEncoder):
    """Three 1 x 1 convolutions for each level of a frozen backbone, with LeakyReLU between them, and l2.

    Akbari et al., "Multi-level multimodal common semantic space for image-phrase grounding", CVPR 2019, section 3.1.
    Its features, made by the extractor MultiLevel, are already interpolated to M x M cells, level by level. The paper
    does not say whether a LeakyReLU follows the last convolution; none does here, as in its textual mapping.

    Args:
        input_dim: D, channels of the widest level; narrower levels are padded with zeros.
        dim: d, dimension of the joint space.
        levels: L.
        slope: alpha of LeakyReLU.

    Shape:
        features (B, L N, D), mask (B, L N) bool -> (B, L, N, d), N = M x M cells, of unit norm; zero where the mask
        is false.

    Example:
        >>> encoder = MultiLevelEncoder(input_dim=3, dim=4, levels=2)
        >>> encoder(torch.rand(1, 8, 3), torch.ones(1, 8, dtype=torch.bool)).shape
        torch.Size([1, 2, 4, 4])
    """

    single_vector = False

    def __init__(self, input_dim: int = 512, dim: int = 1024, levels: int = 4, slope: float = 0.25) -> None:
        super().__init__(input_dim, dim)
        self.levels = nn.ModuleList(_three_layers(input_dim, dim, slope) for _ in range(levels))

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        return self.level_cells(features, mask)

    def level_cells(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return the cells (B, L, N, d) in the joint space."""
        levels = len(self.levels)
        if features.shape[1] % levels:
            raise ValueError(
                f"features {tuple(features.shape)} have {features.shape[1]} cells, not a multiple of {levels} levels: "
                "extract features with MultiLevel, and set levels to the number of its layers"
            )
        by_level = features.unflatten(1, (levels, -1)).unbind(dim=1)
        mapped = [level(cells) for level, cells in zip(self.levels, by_level, strict=True)]
        present: Tensor = mask.unflatten(1, (levels, -1)).unsqueeze(3)
        cells: Tensor = normalize(torch.stack(mapped, dim=1), dim=3) * present
        return cells

    def localizer(self) -> MultiLevelHeatmap:
        """Return the localizer of section 4.3."""
        return MultiLevelHeatmap()


def _three_layers(input_dim: int, dim: int, slope: float) -> nn.Sequential:
    last = nn.Linear(dim, dim)
    # Initialize this bias and the text encoder's to the same positive value: attention is a ReLU of the cosine, and
    # negative cosines would get no gradient.
    nn.init.constant_(last.bias, 4 * dim**-0.5)
    return nn.Sequential(nn.Linear(input_dim, dim), nn.LeakyReLU(slope), nn.Linear(dim, dim), nn.LeakyReLU(slope), last)
