"""Checks of features that were computed elsewhere; the readers add the file and row to the message."""

from bifocal.features.base import ImageRegions

BOX_TOLERANCE = 1e-4
MAX_FLOAT16 = 65504


def validated(regions: ImageRegions) -> ImageRegions:
    """Return ``regions`` if the features are finite float16 numbers and the boxes are inside the image."""
    invalid = (~(regions.features.abs() <= MAX_FLOAT16)).nonzero()
    if len(invalid):
        region, feature = invalid[0].tolist()
        value = regions.features[region, feature].item()
        raise ValueError(f"feature {feature} of region {region} is {value}, expected a number within +-{MAX_FLOAT16}")
    if regions.boxes is not None:
        low, high = regions.boxes[:, :2], regions.boxes[:, 2:]
        valid = (low >= -BOX_TOLERANCE) & (high <= 1 + BOX_TOLERANCE) & (low <= high)
        outside = (~valid.all(dim=1)).nonzero()
        if len(outside):
            box = int(outside[0])
            raise ValueError(
                f"box {box} is {[round(value, 4) for value in regions.boxes[box].tolist()]} relative to the image's "
                "width and height, expected x0 <= x1 and y0 <= y1 in [0, 1]: is it outside the image?"
            )
    return regions
