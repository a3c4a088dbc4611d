"""Textured backgrounds from noise. Each is a function (size, random) -> (size, size, 3) with values in [0, 255]."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.floating[Any]]


def noise(random: Generator, size: int, rows: int, columns: int | None = None) -> Pixels:
    """Return smooth noise in about [-1, 1]: random values on a grid of ``rows`` x ``columns``, resized to the image."""
    grid = random.uniform(-1, 1, size=(rows, columns or rows)).astype(np.float32)
    return np.asarray(Image.fromarray(grid).resize((size, size), Image.Resampling.BICUBIC), dtype=np.float32)


def fractal(random: Generator, size: int, cells: int, octaves: int = 4) -> Pixels:
    """Return the sum of noise on successively finer grids; each octave has half the amplitude of the previous one."""
    layers = (noise(random, size, cells * 2**octave) / 2**octave for octave in range(octaves))
    return np.asarray(sum(layers)) / 1.5


def blend(under: Pixels, over: Pixels, amount: Pixels) -> Pixels:
    """Blend two images: ``under`` where ``amount``, (size, size), is at most 0, ``over`` where it is at least 1."""
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
    return mix((184, 152, 104), (236, 210, 164), 0.5 + 0.2 * ripples + 0.15 * fractal(random, size, 3) + 0.2 * grains)


def brick(size: int, random: Generator) -> Pixels:
    """Draw a wall: rows shifted by half a brick, one tone per brick, pale mortar between the bricks."""
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
    waves = noise(random, size, size // 4, size // 14) + 0.6 * noise(random, size, size // 2, size // 6)
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
    from_edge = np.minimum.reduce([across % 1, 1 - across % 1, along % 1, 1 - along % 1]) * size / slabs
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
