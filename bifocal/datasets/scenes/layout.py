"""What is in a scene: kinds of objects, where they are, and on what."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

SHAPES = ("circle", "square", "triangle", "star", "ring", "cross", "hexagon", "heart", "diamond", "crescent")
COLOURS = {
    "red": (205, 32, 36),
    "orange": (240, 130, 20),
    "yellow": (245, 214, 40),
    "green": (30, 140, 60),
    "blue": (30, 75, 200),
    "purple": (120, 45, 150),
    "pink": (245, 130, 180),
    "white": (242, 242, 238),
}
TEXTURES = ("plain", "striped", "dotted", "checkered")
RADII = {"small": (0.095, 0.115), "medium": (0.145, 0.17), "large": (0.205, 0.235)}
BACKGROUNDS = ("grass", "sand", "brick", "wood", "sky", "water", "snow", "stone", "night")

# Colours that hide on a background.
HIDDEN = {"grass": "green", "sky": "blue", "water": "blue", "snow": "white", "brick": "red", "sand": "yellow"}
OBJECTS = ((1, 0.15), (2, 0.35), (3, 0.33), (4, 0.17))
PLACEMENTS = 60


@dataclass(frozen=True)
class Kind:
    """What objects of one group have in common; ``size`` is "small", "medium" or "large"."""

    shape: str
    colour: str
    texture: str
    size: str


@dataclass(frozen=True)
class Thing:
    """One object: centre and radius as fractions of the image's side, angle in degrees, colour in [0, 255]."""

    kind: Kind
    x: float
    y: float
    radius: float
    angle: float
    colour: tuple[float, float, float]


@dataclass(frozen=True)
class Scene:
    """Groups of alike objects on one of ``BACKGROUNDS``; drawn in the order of the groups, the last on top.

    ``seed`` is of the noise in the background and in the pixels, ``light`` the direction of the light in radians.
    """

    background: str
    groups: tuple[tuple[Thing, ...], ...]
    light: float
    seed: int


def draw_layout(random: Generator) -> Scene:
    """A scene of 1 to 4 objects, which overlap by little."""
    background = BACKGROUNDS[random.integers(len(BACKGROUNDS))]
    counts, chances = zip(*OBJECTS, strict=True)
    left = int(random.choice(counts, p=chances))
    groups: list[tuple[Thing, ...]] = []
    while left:
        count = int(random.integers(2, min(left, 3) + 1)) if left > 1 and random.random() < 0.25 else 1
        kind = _kind(random, background, [group[0].kind for group in groups])
        placed = [thing for group in groups for thing in group]
        group: list[Thing] = []
        for _ in range(count):
            group.append(_place(random, kind, [*placed, *group]))
        groups.append(tuple(group))
        left -= count
    return Scene(background, tuple(groups), float(random.uniform(0, 2 * np.pi)), int(random.integers(2**32)))


def _kind(random: Generator, background: str, others: list[Kind]) -> Kind:
    """A kind whose shape and colour together no other group has, so that a caption can tell them apart."""
    while True:
        shape = SHAPES[random.integers(len(SHAPES))]
        colour = tuple(COLOURS)[random.integers(len(COLOURS))]
        taken = any((other.shape, other.colour) == (shape, colour) for other in others)
        if colour != HIDDEN.get(background) and not taken:
            texture = str(random.choice(TEXTURES, p=(0.46, 0.18, 0.18, 0.18)))
            return Kind(shape, colour, texture, str(random.choice(tuple(RADII))))


def _place(random: Generator, kind: Kind, others: list[Thing]) -> Thing:
    """Where it overlaps the others least, of a few places tried."""
    low, high = RADII[kind.size]
    radius = float(random.uniform(low, high))
    best, least = (0.5, 0.5), np.inf
    for _ in range(PLACEMENTS):
        x, y = (float(value) for value in random.uniform(radius + 0.01, 0.99 - radius, size=2))
        overlaps = (radius + other.radius - np.hypot(x - other.x, y - other.y) for other in others)
        overlap = max(overlaps, default=-1.0)
        if overlap < least:
            best, least = (x, y), overlap
        if overlap < 0:
            break
    shade = random.uniform(0.9, 1.06) * np.array(COLOURS[kind.colour]) + random.uniform(-8, 8, size=3)
    red, green, blue = (float(value) for value in np.clip(shade, 0, 255))
    return Thing(kind, *best, radius, float(random.uniform(-14, 14)), (red, green, blue))
