"""The color map of heatmaps, without matplotlib."""

import numpy as np
from numpy.typing import NDArray

_POINTS = (
    "0000040403120b0724150b37210c4a2f0a5b3d09654a0c6b57106e64156e71196e7d1e6d8a226a972766a32c61b0315b"
    "bc3754c63d4dd04545da4e3ce35933eb6429f1711ff67e14f98c0afb9b06fcaa0ffbba1ff9c932f5d949f2e865f3f586"
    "fcffa4"
)
"""33 equally spaced colors of matplotlib's inferno, by Nathaniel J. Smith and Stefan van der Walt (CC0), as hex RGB."""


def inferno(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the colors (..., 3) in [0, 1] of values (...) in [0, 1]: dark for 0, bright for 1.

    Example:
        >>> inferno(np.array([0.0, 1.0])).round(2).tolist()
        [[0.0, 0.0, 0.02], [0.99, 1.0, 0.64]]
    """
    colors = np.frombuffer(bytes.fromhex(_POINTS), dtype=np.uint8).reshape(-1, 3) / 255
    positions = np.linspace(0, 1, len(colors))
    return np.stack([np.interp(values, positions, channel) for channel in colors.T], axis=-1)
