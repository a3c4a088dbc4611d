"""Resizing of images with Pillow, for extraction and for a server without torch."""

from typing import Literal

from PIL import Image

DECODED_SCALE = 2
"""A JPEG is decoded at a fraction of its resolution if each side keeps this many times the pixels of the result."""
LONG = 4
"""Ratio of the sides above which a crop spares work; its pixels differ by rounding from a crop after resizing."""
Resize = Literal["square", "aspect", "limit"]
"""``square``: size x size, which changes the aspect ratio. ``aspect``: the longer side becomes size.
``limit``: a longer side above size becomes size; a smaller image stays as it is."""
ResizeOrCrop = Literal["square", "aspect", "limit", "crop"]
"""As ``Resize``, and ``crop``: the shorter side becomes size / crop_pct of the weights, and the network reads the
central size x size square. The rest of the image is cut off."""


def resize_image(image: Image.Image, size: int, resize: Resize, interpolation: str) -> Image.Image:
    """Resize an image to ``size`` pixels, by Pillow's ``interpolation`` ("bicubic")."""
    resized = resized_size(*image.size, size, resize)
    return image if image.size == resized else image.resize(resized, Image.Resampling[interpolation.upper()])


def resized_size(width: int, height: int, size: int, resize: Resize) -> tuple[int, int]:
    """Return the width and height of a resized image, in pixels."""
    if resize == "square":
        return size, size
    longer = max(width, height)
    if resize == "limit" and longer <= size:
        return width, height
    return max(1, round(width * size / longer)), max(1, round(height * size / longer))


def resize_shorter(image: Image.Image, shorter: int, interpolation: str) -> Image.Image:
    """Resize an image so that its shorter side has ``shorter`` pixels, as ``torchvision.transforms.Resize``."""
    size = shorter_size(*image.size, shorter)
    return image if image.size == size else image.resize(size, Image.Resampling[interpolation.upper()])


def resize_square(image: Image.Image, shorter: int, side: int, interpolation: str) -> Image.Image:
    """Return the central square of ``resize_shorter``'s image; above ``LONG``, an image is cropped before resizing."""
    width, height = shorter_size(*image.size, shorter)
    left, top, right, bottom = center_box(width, height, side)
    if max(width, height) <= LONG * min(width, height):
        return resize_shorter(image, shorter, interpolation).crop((left, top, right, bottom))
    x, y = image.width / width, image.height / height
    box = (left * x, top * y, min(right * x, image.width), min(bottom * y, image.height))
    return image.resize((side, side), Image.Resampling[interpolation.upper()], box)


def shorter_size(width: int, height: int, shorter: int) -> tuple[int, int]:
    """Return width and height of an image after ``resize_shorter``."""
    longer = int(shorter * max(width, height) / min(width, height))
    return (shorter, longer) if width <= height else (longer, shorter)


def center_box(width: int, height: int, side: int) -> tuple[int, int, int, int]:
    """Return x0 y0 x1 y1 of the central square, in pixels, as ``torchvision.transforms.CenterCrop``."""
    left, top = round((width - side) / 2), round((height - side) / 2)
    return left, top, left + side, top + side
