"""Pixels of a scene: its background, and its objects."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from bifocal.datasets.base import Box
from bifocal.datasets.scenes.layout import Scene, SceneObject

Pixels = NDArray[np.floating[Any]]
SUPERSAMPLING = 4
"""Silhouettes are drawn this many times larger and averaged, for smooth edges."""
_ARM = 0.32
_CROSS = [(_ARM, 1), (_ARM, _ARM), (1, _ARM), (1, -_ARM), (_ARM, -_ARM), (_ARM, -1)]


def noise(random: Generator, size: int, rows: int, columns: int | None = None) -> Pixels:
    """Return smooth noise in about [-1, 1]: random values on a grid of ``rows`` x ``columns``,
    resized to the image."""
    grid = random.uniform(-1, 1, size=(rows, columns or rows)).astype(np.float32)
    return np.asarray(
        Image.fromarray(grid).resize((size, size), Image.Resampling.BICUBIC), dtype=np.float32
    )


def fractal(random: Generator, size: int, cells: int, octaves: int = 4) -> Pixels:
    """Return the sum of noise on successively finer grids; each octave has half the amplitude of
    the previous one."""
    layers = (noise(random, size, cells * 2**octave) / 2**octave for octave in range(octaves))
    return np.asarray(sum(layers)) / 1.5


def blend(under: Pixels, over: Pixels, amount: Pixels) -> Pixels:
    """Blend two images: ``under`` where ``amount``, (size, size), is at most 0, ``over`` where it
    is at least 1."""
    share: Pixels = np.clip(amount, 0, 1)[..., None]
    return under + (over - under) * share


def mix(low: tuple[int, int, int], high: tuple[int, int, int], amount: Pixels) -> Pixels:
    """Interpolate colors: ``low`` where ``amount`` is 0, ``high`` where it is 1."""
    return blend(np.array(low, np.float32), np.array(high, np.float32), amount)


def coordinates(size: int) -> tuple[Pixels, Pixels]:
    """Return x and y of every pixel center, in (0, 1)."""
    line = ((np.arange(size) + 0.5) / size).astype(np.float32)
    x, y = np.meshgrid(line, line)
    return x, y


def grass(size: int, random: Generator) -> Pixels:
    """Draw a lawn: blades (noise that is finer across than along) in lighter and darker patches."""
    blades = noise(random, size, size // 6, size) + 0.7 * noise(random, size, size // 3, size)
    patches = fractal(random, size, 3)
    return mix((38, 74, 22), (126, 168, 66), 0.5 + 0.3 * blades + 0.3 * patches)


def sand(size: int, random: Generator) -> Pixels:
    """Draw a beach: bent ripples and grains."""
    x, y = coordinates(size)
    angle, frequency = random.uniform(-0.5, 0.5), random.uniform(7, 12)
    along = y * np.cos(angle) + x * np.sin(angle) + 0.08 * fractal(random, size, 2)
    grains = noise(random, size, size)
    ripples = np.sin(2 * np.pi * frequency * along)
    return mix(
        (184, 152, 104),
        (236, 210, 164),
        0.5 + 0.2 * ripples + 0.15 * fractal(random, size, 3) + 0.2 * grains,
    )


def brick(size: int, random: Generator) -> Pixels:
    """Draw a wall: rows shifted by half a brick, one tone per brick, pale mortar between the
    bricks."""
    x, y = coordinates(size)
    courses = int(random.integers(7, 10))
    row = np.floor(y * courses).astype(int)
    along = x * courses / 2.2 + 0.5 * (row % 2) + random.uniform(0, 1)
    column = np.floor(along).astype(int)
    tones = random.uniform(0, 1, size=(courses, courses + 2)).astype(np.float32)
    rough = 0.25 * fractal(random, size, 8) + 0.18 * noise(random, size, size)
    wall = mix((112, 52, 38), (178, 98, 74), tones[row, column] + rough)
    from_row = np.minimum(y * courses % 1, 1 - y * courses % 1)
    from_column = 2.2 * np.minimum(along % 1, 1 - along % 1)
    mortar = 1.5 - np.minimum(from_row, from_column) * size / courses / 1.1
    return blend(wall, 188 + 18 * rough[..., None], mortar)


def wood(size: int, random: Generator) -> Pixels:
    """Draw boards side by side, with grain along them and dark gaps between them."""
    _, y = coordinates(size)
    boards = int(random.integers(4, 7))
    board = np.floor(y * boards).astype(int)
    tones = random.uniform(-0.25, 0.25, size=boards).astype(np.float32)
    shifts = random.uniform(0, 9, size=boards).astype(np.float32)
    bent = 5 * y + 0.35 * noise(random, size, 6, 3) + shifts[board]
    grain = np.sin(2 * np.pi * 3.2 * bent) * 0.18 + 0.22 * noise(random, size, size, size // 12)
    planks = mix((104, 66, 34), (190, 138, 84), 0.5 + tones[board] + grain)
    from_edge = np.minimum(y * boards % 1, 1 - y * boards % 1) * size / boards
    return blend(0.35 * planks, planks, from_edge / 1.6)


def sky(size: int, random: Generator) -> Pixels:
    """Draw blue that pales towards the horizon, and clouds."""
    _, y = coordinates(size)
    blue = mix((74, 132, 206), (170, 206, 238), y + 0.05 * noise(random, size, 3))
    cover = random.uniform(-0.15, 0.25)
    clouds = np.minimum(1.6 * (fractal(random, size, 3, 5) + cover), 0.95)
    return blend(blue, np.array((240, 243, 247), np.float32), clouds)


def water(size: int, random: Generator) -> Pixels:
    """Draw a sea: waves that are wider than high, with light on the crests."""
    _, y = coordinates(size)
    waves = noise(random, size, size // 4, size // 14) + 0.6 * noise(
        random, size, size // 2, size // 6
    )
    crests = np.clip(waves - 0.75, 0, 1)[..., None]
    return mix((8, 70, 92), (46, 146, 160), 0.35 + 0.25 * y + 0.3 * waves) + 110 * crests


def snow(size: int, random: Generator) -> Pixels:
    """Draw drifts with bluish shade and a little glitter."""
    drifts = fractal(random, size, 2, 5)
    glitter = (random.random((size, size, 1)) > 0.995) * np.float32(18)
    return mix((176, 192, 216), (238, 243, 250), 0.6 + 0.6 * drifts) + glitter


def stone(size: int, random: Generator) -> Pixels:
    """Draw a pavement of speckled gray slabs."""
    x, y = coordinates(size)
    slabs = int(random.integers(3, 5))
    across, along = x * slabs + random.uniform(0, 1), y * slabs + random.uniform(0, 1)
    tones = random.uniform(-0.15, 0.15, size=(slabs + 2, slabs + 2)).astype(np.float32)
    tone = tones[np.floor(along).astype(int), np.floor(across).astype(int)]
    speckles = 0.28 * noise(random, size, size) + 0.25 * fractal(random, size, 6)
    from_edge = (
        np.minimum.reduce([across % 1, 1 - across % 1, along % 1, 1 - along % 1]) * size / slabs
    )
    slab = mix((92, 92, 94), (168, 166, 160), 0.5 + tone + speckles)
    return blend(0.45 * slab, slab, from_edge / 2)


def night(size: int, random: Generator) -> Pixels:
    """Draw a dark sky with stars and a faint band of light."""
    _, y = coordinates(size)
    dark = mix((8, 10, 30), (36, 38, 78), 0.6 * y + 0.35 * fractal(random, size, 2))
    stars = random.random((size, size)) > 0.996
    return dark + (stars * random.uniform(70, 190, size=(size, size)))[..., None].astype(np.float32)


DRAWERS: dict[str, Callable[[int, Generator], Pixels]] = {
    "grass": grass,
    "sand": sand,
    "brick": brick,
    "wood": wood,
    "sky": sky,
    "water": water,
    "snow": snow,
    "stone": stone,
    "night": night,
}


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
    """Return the tight box x0 y0 x1 y1, in pixels, of all pixels that the object touches, including
    covered ones."""
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

    # Shade the object like a cushion: slopes facing the light are brighter, slopes facing away
    # darker.
    height = (
        np.asarray(
            mask.filter(ImageFilter.GaussianBlur(item.radius * size * 0.18)), dtype=np.float32
        )
        / 255
    )
    slope_y, slope_x = np.gradient(height * item.radius * size)
    facing = -(np.cos(light) * slope_x + np.sin(light) * slope_y)
    shade = 1 + 0.32 * np.clip(facing, -1, 1)
    gloss = 60 * np.clip(facing - 0.35, 0, 1)
    paint = _surface(item, size) * shade[..., None] + gloss[..., None]
    return blend(canvas, paint, cover)


def _surface(item: SceneObject, size: int) -> Pixels:
    """Return the color of the object's surface at every pixel: its color, and a second color in its
    texture."""
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
    moved = mask.transform(
        mask.size, Image.Transform.AFFINE, (1, 0, -dx, 0, 1, -dy), Image.Resampling.BILINEAR
    )
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


def _heart() -> NDArray[np.float64]:
    t = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    x, y = (
        16 * np.sin(t) ** 3,
        13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t),
    )
    return np.stack([x, -y - 2.5], axis=1) / 16.5


OUTLINES: dict[str, list[tuple[NDArray[np.float64], int]]] = {
    "circle": [(_regular(72, 0), 255)],
    "square": [(_regular(4, 45, 1.2), 255)],
    "triangle": [(_regular(3, -90, 1.1, (0, 0.2)), 255)],
    "star": [
        (np.stack([_regular(5, -90), _regular(5, -54, 0.45)], axis=1).reshape(-1, 2) * 1.1, 255)
    ],
    "ring": [(_regular(72, 0), 255), (_regular(72, 0, 0.52), 0)],
    "cross": [(np.array([*_CROSS, *((-x, -y) for x, y in _CROSS)]), 255)],
    "hexagon": [(_regular(6, 0), 255)],
    "heart": [(_heart(), 255)],
    "diamond": [(_regular(4, -90, 1.1) * (0.66, 1), 255)],
    "crescent": [(_regular(72, 0), 255), (_regular(72, 0, 0.86, (0.46, -0.1)), 0)],
}
"""Polygons of about radius 1 around (0, 0), y pointing down; a polygon of value 255 adds area, one
of 0 removes it."""
