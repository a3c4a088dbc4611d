"""What somebody else's features must be, said where file and row are known."""

from bifocal.features.base import ImageRegions

ROUNDING = 1e-4
HALF = 65504


def checked(regions: ImageRegions) -> ImageRegions:
    """The same regions.

    Raises:
        ValueError: a feature is not finite or beyond float16, or a box is none, or lies outside the image.
    """
    wrong = (~(regions.features.abs() <= HALF)).nonzero()
    if len(wrong):
        region, feature = wrong[0].tolist()
        value = regions.features[region, feature].item()
        raise ValueError(f"feature {feature} of region {region} is {value}, expected a number within +-{HALF}")
    if regions.boxes is not None:
        low, high = regions.boxes[:, :2], regions.boxes[:, 2:]
        inside = (low >= -ROUNDING) & (high <= 1 + ROUNDING) & (low <= high)
        outside = (~inside.all(dim=1)).nonzero()
        if len(outside):
            box = int(outside[0])
            raise ValueError(
                f"box {box} is {[round(value, 4) for value in regions.boxes[box].tolist()]} relative to the image's "
                "width and height, expected x0 <= x1 and y0 <= y1 in [0, 1]: is it outside the image?"
            )
    return regions
