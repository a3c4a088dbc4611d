"""Pixels and boxes of a scene."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from bifocal.datasets.base import Box
from bifocal.datasets.scenes.backgrounds import DRAWERS, Pixels, blend, coordinates, noise
from bifocal.datasets.scenes.layout import Scene, SceneObject

SUPERSAMPLING = 4
"""Silhouettes are drawn this many times larger and averaged, for smooth edges."""


def draw_scene(scene: Scene, size: int) -> Image.Image:
    """Draw the scene as an RGB image of size x size pixels."""
    random = np.random.default_rng(scene.seed)
    canvas: Pixels = DRAWERS[scene.background](size, random)
    x, y = coordinates(size)
    sun = np.cos(scene.light) * (x - 0.5) + np.sin(scene.light) * (y - 0.5)
    canvas = canvas * (1 + 0.28 * sun[..., None])
    for group in scene.groups:
        for item in group:
            canvas = _draw_object(canvas, item, scene.light, size)
    canvas = canvas * (1.03 - 0.22 * ((x - 0.5) ** 2 + (y - 0.5) ** 2))[..., None]
    canvas = canvas + 2.5 * random.standard_normal(canvas.shape, dtype=np.float32)
    return Image.fromarray(np.clip(canvas, 0, 255).astype(np.uint8))


def box_of(item: SceneObject, size: int) -> Box:
    """Return the tight box x0 y0 x1 y1, in pixels, of all pixels that the object touches, including covered ones."""
    covered = silhouette(item, size) > 0
    columns, rows = np.flatnonzero(covered.any(axis=0)), np.flatnonzero(covered.any(axis=1))
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


def silhouette(item: SceneObject, size: int) -> Pixels:
    """Return the fraction of every pixel that the object covers, (size, size) in [0, 1]."""
    mask = Image.new("L", (size * SUPERSAMPLING, size * SUPERSAMPLING))
    draw = ImageDraw.Draw(mask)
    scale = size * SUPERSAMPLING
    for outline, ink in OUTLINES[item.appearance.shape]:
        corners = _rotate(outline, item.angle) * item.radius + (item.x, item.y)
        draw.polygon([(float(x), float(y)) for x, y in corners * scale], fill=ink)
    return np.asarray(mask.reduce(SUPERSAMPLING), dtype=np.float32) / 255


def _draw_object(canvas: Pixels, item: SceneObject, light: float, size: int) -> Pixels:
    cover = silhouette(item, size)
    mask = Image.fromarray((cover * 255).astype(np.uint8))
    depth = max(1.0, 0.03 * size)
    away = (-depth * np.cos(light), -depth * np.sin(light))
    shadow = _shift(mask.filter(ImageFilter.GaussianBlur(depth * 0.6)), *away)
    canvas = canvas * (1 - 0.5 * shadow[..., None])

    # Shade the object like a cushion: slopes facing the light are brighter, slopes facing away darker.
    height = np.asarray(mask.filter(ImageFilter.GaussianBlur(item.radius * size * 0.18)), dtype=np.float32) / 255
    slope_y, slope_x = np.gradient(height * item.radius * size)
    facing = -(np.cos(light) * slope_x + np.sin(light) * slope_y)
    shade = 1 + 0.32 * np.clip(facing, -1, 1)
    gloss = 60 * np.clip(facing - 0.35, 0, 1)
    paint = _surface(item, size) * shade[..., None] + gloss[..., None]
    return blend(canvas, paint, cover)


def _surface(item: SceneObject, size: int) -> Pixels:
    """Return the color of the object's surface at every pixel: its color, and a second color in its texture."""
    color = np.array(item.color, np.float32)
    luminance = float(color @ np.array((0.299, 0.587, 0.114), np.float32))
    second = 0.25 * color + 0.75 * 250 if luminance < 120 else 0.3 * color
    x, y = coordinates(size)
    angle = np.deg2rad(item.angle)
    dx, dy = x - item.x, y - item.y
    u, v = dx * np.cos(angle) + dy * np.sin(angle), -dx * np.sin(angle) + dy * np.cos(angle)
    pitch = 0.03 + 0.11 * item.radius  # period of the pattern, as a fraction of the image's side
    soft = size * pitch / 2
    if item.appearance.texture == "striped":
        pattern = np.sin(2 * np.pi * (u + v) / pitch / 1.3) - 0.1
    elif item.appearance.texture == "checkered":
        pattern = np.sin(np.pi * u / pitch) * np.sin(np.pi * v / pitch)
    elif item.appearance.texture == "dotted":
        row = np.round(v / pitch)
        from_row, from_column = v / pitch - row, (u / pitch + 0.5 * (row % 2) + 0.5) % 1 - 0.5
        pattern = 0.3 - np.hypot(from_row, from_column)
        soft *= 2
    else:
        pattern = np.full_like(u, -1)
    surface = noise(np.random.default_rng(round(item.x * 1e6)), size, size // 3)[..., None]
    return blend(color, second, pattern * soft + 0.5) + 6 * surface


def _shift(mask: Image.Image, dx: float, dy: float) -> Pixels:
    moved = mask.transform(mask.size, Image.Transform.AFFINE, (1, 0, -dx, 0, 1, -dy), Image.Resampling.BILINEAR)
    return np.asarray(moved, dtype=np.float32) / 255


def _rotate(outline: NDArray[np.float64], angle: float) -> NDArray[np.float64]:
    turn = np.deg2rad(angle)
    rotation = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    return np.asarray(outline @ rotation)


def _regular(
    corners: int, start: float, radius: float = 1.0, center: tuple[float, float] = (0, 0)
) -> NDArray[np.float64]:
    angles = np.deg2rad(start) + 2 * np.pi * np.arange(corners) / corners
    return radius * np.stack([np.cos(angles), np.sin(angles)], axis=1) + center


def _star() -> NDArray[np.float64]:
    return np.stack([_regular(5, -90), _regular(5, -54, 0.45)], axis=1).reshape(-1, 2)


def _heart() -> NDArray[np.float64]:
    t = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    x, y = 16 * np.sin(t) ** 3, 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return np.stack([x, -y - 2.5], axis=1) / 16.5


_ARM = 0.32
_CROSS = [(_ARM, 1), (_ARM, _ARM), (1, _ARM), (1, -_ARM), (_ARM, -_ARM), (_ARM, -1)]

OUTLINES: dict[str, list[tuple[NDArray[np.float64], int]]] = {
    "circle": [(_regular(72, 0), 255)],
    "square": [(_regular(4, 45, 1.2), 255)],
    "triangle": [(_regular(3, -90, 1.1, (0, 0.2)), 255)],
    "star": [(_star() * 1.1, 255)],
    "ring": [(_regular(72, 0), 255), (_regular(72, 0, 0.52), 0)],
    "cross": [(np.array([*_CROSS, *((-x, -y) for x, y in _CROSS)]), 255)],
    "hexagon": [(_regular(6, 0), 255)],
    "heart": [(_heart(), 255)],
    "diamond": [(_regular(4, -90, 1.1) * (0.66, 1), 255)],
    "crescent": [(_regular(72, 0), 255), (_regular(72, 0, 0.86, (0.46, -0.1)), 0)],
}
"""Polygons of about radius 1 around (0, 0), y pointing down; a polygon of value 255 adds area, one of 0 removes it."""
