"""The regions of R-MAC: a grid of squares over a feature map, at several scales."""

import torch
from torch import Tensor

OVERLAP = 0.4
EXTRA_REGIONS = range(1, 7)


def grid_regions(height: int, width: int, scales: int) -> list[tuple[int, int, int]]:
    """Return the squares (top, left, side) of R-MAC over a map, in cells.

    Tolias, Sicre, Jegou, ICLR 2016, section 3.2: at scale l, l regions of side 2 min(h, w) / (l +
    1) lie along the shorter side and l + m along the longer; m sets the overlap at l = 1 to 40 %.
    The roundings are those of their code, also where two values of m fit equally, as for 9 x 33.
    """
    short, extra = min(height, width), 0
    if height != width:
        strides = [(max(height, width) - short) / count for count in EXTRA_REGIONS]
        misfits = [abs((short**2 - short * stride) / short**2 - OVERLAP) for stride in strides]
        extra = 1 + misfits.index(min(misfits))
    regions = []
    for scale in range(1, scales + 1):
        side = 2 * short // (scale + 1)
        if side < 1:
            raise ValueError(
                f"a map of {height} x {width} cells has no regions at scale {scale}: enlarge "
                "the image"
            )
        tops = _offsets(height, side, scale + (extra if height > width else 0))
        lefts = _offsets(width, side, scale + (extra if width > height else 0))
        regions += [(top, left, side) for top in tops for left in lefts]
    return regions


def region_maxima(maps: Tensor, scales: int) -> Tensor:
    """Return the maximum of each channel in each of the n regions: maps (B, C, h, w) -> (B, n,
    C)."""
    maxima = [
        maps[:, :, top : top + side, left : left + side].amax(dim=(2, 3))
        for top, left, side in grid_regions(int(maps.shape[2]), int(maps.shape[3]), scales)
    ]
    return torch.stack(maxima, dim=1)


def region_maxima_of_any_size(maps: Tensor, scales: int) -> tuple[Tensor, Tensor]:
    """Return ``region_maxima`` in a graph of any image size: maps (B, C, h, w) -> maxima (B, n, C),
    present (n,).

    The output has room for the regions of every map size; absent regions are minus infinity.
    """
    rows, columns = (
        torch.arange(maps.shape[2], device=maps.device),
        torch.arange(maps.shape[3], device=maps.device),
    )
    height, width = rows.max() + 1, columns.max() + 1
    short, longer = torch.minimum(height, width).double(), torch.maximum(height, width).double()
    strides = (longer - short) / torch.tensor(
        EXTRA_REGIONS, dtype=torch.float64, device=maps.device
    )
    extra = 1 + ((short**2 - short * strides) / short**2 - OVERLAP).abs().argmin()
    maxima, present = [], []
    for scale in range(1, scales + 1):
        side = torch.div(2 * torch.minimum(height, width), scale + 1, rounding_mode="floor")
        most = scale + max(EXTRA_REGIONS)
        tops = _windows(rows, side, scale + extra * (height > width), most)
        lefts = _windows(columns, side, scale + extra * (width > height), most)
        bands = torch.stack(
            [maps.masked_fill(~top[:, None], -torch.inf).amax(dim=2) for top in tops.unbind()],
            dim=1,
        )
        maxima += [bands.masked_fill(~left, -torch.inf).amax(dim=3) for left in lefts.unbind()]
        present.append((lefts.any(dim=1)[:, None] & tops.any(dim=1)).flatten())
    return torch.cat(maxima, dim=1), torch.cat(present)


def _windows(cells: Tensor, side: Tensor, count: Tensor, most: int) -> Tensor:
    """Return whether a cell (n,) of a row is in a window: (most, n), where the first ``count``
    windows exist."""
    number = torch.arange(most, device=cells.device)
    first = torch.div(
        (cells.max() + 1 - side) * number, (count - 1).clamp(min=1), rounding_mode="floor"
    )[:, None]
    return (cells >= first) & (cells < first + side) & (number < count)[:, None]


def _offsets(length: int, side: int, count: int) -> list[int]:
    return (
        [0] if count == 1 else [(length - side) * number // (count - 1) for number in range(count)]
    )
