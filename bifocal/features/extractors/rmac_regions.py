"""The regions of R-MAC: squares on a grid over a feature map, at several scales."""

import torch
from torch import Tensor

OVERLAP = 0.4
STEPS = range(1, 7)


def grid_regions(height: int, width: int, scales: int) -> list[tuple[int, int, int]]:
    """Squares (top, left, side) over a map, in cells.

    Tolias, Sicre, Jegou, "Particular object retrieval with integral max-pooling of CNN activations", ICLR 2016,
    section 3.2, with the rounding of their code: at scale l the side is 2 min(h, w) / (l + 1); l regions lie along
    the shorter side, l + m along the longer, m being such that neighbours at l = 1 overlap by 40 % as nearly as may
    be (0 on a square map).

    Raises:
        ValueError: the map is too small to have regions at ``scales``.
    """
    short, more = min(height, width), 0
    if height != width:
        strides = [(max(height, width) - short) / steps for steps in STEPS]
        more = 1 + min(range(len(strides)), key=lambda step: abs((short - strides[step]) / short - OVERLAP))
    regions = []
    for scale in range(1, scales + 1):
        side = 2 * short // (scale + 1)
        if side < 1:
            raise ValueError(f"a map of {height} x {width} cells has no regions at scale {scale}: enlarge the image")
        tops = _starts(height, side, scale + (more if height > width else 0))
        lefts = _starts(width, side, scale + (more if width > height else 0))
        regions += [(top, left, side) for top in tops for left in lefts]
    return regions


def region_maxima(maps: Tensor, scales: int) -> Tensor:
    """The maximum of each channel in each region of maps (B, C, h, w): (B, n, C)."""
    maxima = [
        maps[:, :, top : top + side, left : left + side].amax(dim=(2, 3))
        for top, left, side in grid_regions(int(maps.shape[2]), int(maps.shape[3]), scales)
    ]
    return torch.stack(maxima, dim=1)


def _starts(length: int, side: int, count: int) -> list[int]:
    return [0] if count == 1 else [(length - side) * number // (count - 1) for number in range(count)]
