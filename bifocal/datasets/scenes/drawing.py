"""From a scene to pixels and boxes."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from bifocal.datasets.scenes.backgrounds import BACKGROUND, Pixels, blend, coordinates, noise
from bifocal.datasets.scenes.layout import Scene, Thing

FINER = 4  # silhouettes are drawn this many times larger, then averaged: smooth edges
Box = tuple[float, float, float, float]


def draw_scene(scene: Scene, size: int) -> Image.Image:
    """The scene as an RGB image of size x size pixels."""
    random = np.random.default_rng(scene.seed)
    canvas: Pixels = BACKGROUND[scene.background](size, random)
    x, y = coordinates(size)
    sun = np.cos(scene.light) * (x - 0.5) + np.sin(scene.light) * (y - 0.5)
    canvas = canvas * (1 + 0.28 * sun[..., None])
    for group in scene.groups:
        for thing in group:
            canvas = _put(canvas, thing, scene.light, size)
    canvas = canvas * (1.03 - 0.22 * ((x - 0.5) ** 2 + (y - 0.5) ** 2))[..., None]
    canvas = canvas + 2.5 * random.standard_normal(canvas.shape, dtype=np.float32)
    return Image.fromarray(np.clip(canvas, 0, 255).astype(np.uint8))


def box_of(thing: Thing, size: int) -> Box:
    """The tight box x0 y0 x1 y1, in pixels, around every pixel that the object touches, seen or not."""
    covered = silhouette(thing, size) > 0
    columns, rows = np.flatnonzero(covered.any(axis=0)), np.flatnonzero(covered.any(axis=1))
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


def silhouette(thing: Thing, size: int) -> Pixels:
    """(size, size): how much of every pixel the object covers, in [0, 1]."""
    mask = Image.new("L", (size * FINER, size * FINER))
    draw = ImageDraw.Draw(mask)
    scale = size * FINER
    for outline, ink in OUTLINES[thing.kind.shape]:
        corners = _turned(outline, thing.angle) * thing.radius + (thing.x, thing.y)
        draw.polygon([(float(x), float(y)) for x, y in corners * scale], fill=ink)
    return np.asarray(mask.reduce(FINER), dtype=np.float32) / 255


def _put(canvas: Pixels, thing: Thing, light: float, size: int) -> Pixels:
    cover = silhouette(thing, size)
    mask = Image.fromarray((cover * 255).astype(np.uint8))
    depth = max(1.0, 0.03 * size)
    away = (-depth * np.cos(light), -depth * np.sin(light))
    shadow = _shifted(mask.filter(ImageFilter.GaussianBlur(depth * 0.6)), *away)
    canvas = canvas * (1 - 0.5 * shadow[..., None])

    # Height of a cushion: its slope against the light brightens, away from it darkens.
    height = np.asarray(mask.filter(ImageFilter.GaussianBlur(thing.radius * size * 0.18)), dtype=np.float32) / 255
    slope_y, slope_x = np.gradient(height * thing.radius * size)
    facing = -(np.cos(light) * slope_x + np.sin(light) * slope_y)
    shade = 1 + 0.32 * np.clip(facing, -1, 1)
    gloss = 60 * np.clip(facing - 0.35, 0, 1)
    paint = _painted(thing, size) * shade[..., None] + gloss[..., None]
    return blend(canvas, paint, cover)


def _painted(thing: Thing, size: int) -> Pixels:
    """The colour of the object's surface at every pixel: its own, and a second one in its texture."""
    colour = np.array(thing.colour, np.float32)
    luminance = float(colour @ np.array((0.299, 0.587, 0.114), np.float32))
    second = 0.25 * colour + 0.75 * 250 if luminance < 120 else 0.3 * colour
    x, y = coordinates(size)
    turned = np.deg2rad(thing.angle)
    dx, dy = x - thing.x, y - thing.y
    u, v = dx * np.cos(turned) + dy * np.sin(turned), -dx * np.sin(turned) + dy * np.cos(turned)
    pitch = 0.03 + 0.11 * thing.radius  # of the pattern, as a fraction of the image's side
    soft = size * pitch / 2
    if thing.kind.texture == "striped":
        pattern = np.sin(2 * np.pi * (u + v) / pitch / 1.3) - 0.1
    elif thing.kind.texture == "checkered":
        pattern = np.sin(np.pi * u / pitch) * np.sin(np.pi * v / pitch)
    elif thing.kind.texture == "dotted":
        row = np.round(v / pitch)
        from_row, from_column = v / pitch - row, (u / pitch + 0.5 * (row % 2) + 0.5) % 1 - 0.5
        pattern = 0.3 - np.hypot(from_row, from_column)
        soft *= 2
    else:
        pattern = np.full_like(u, -1)
    surface = noise(np.random.default_rng(round(thing.x * 1e6)), size, size // 3)[..., None]
    return blend(colour, second, pattern * soft + 0.5) + 6 * surface


def _shifted(mask: Image.Image, dx: float, dy: float) -> Pixels:
    moved = mask.transform(mask.size, Image.Transform.AFFINE, (1, 0, -dx, 0, 1, -dy), Image.Resampling.BILINEAR)
    return np.asarray(moved, dtype=np.float32) / 255


def _turned(outline: NDArray[np.float64], angle: float) -> NDArray[np.float64]:
    turn = np.deg2rad(angle)
    rotation = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    return np.asarray(outline @ rotation)


def _regular(
    corners: int, start: float, radius: float = 1.0, centre: tuple[float, float] = (0, 0)
) -> NDArray[np.float64]:
    angles = np.deg2rad(start) + 2 * np.pi * np.arange(corners) / corners
    return radius * np.stack([np.cos(angles), np.sin(angles)], axis=1) + centre


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
"""Polygons around (0, 0) of about radius 1, y downwards; 255 adds, 0 takes away."""
