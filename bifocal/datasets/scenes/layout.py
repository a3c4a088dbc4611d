"""Layout of a scene: its background, its objects, their appearance and position."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

SHAPES = (
    "circle",
    "square",
    "triangle",
    "star",
    "ring",
    "cross",
    "hexagon",
    "heart",
    "diamond",
    "crescent",
)
COLORS = {
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

# Colors that are hard to see on a background.
CAMOUFLAGED = {
    "grass": "green",
    "sky": "blue",
    "water": "blue",
    "snow": "white",
    "brick": "red",
    "sand": "yellow",
}
OBJECT_COUNTS = ((1, 0.15), (2, 0.35), (3, 0.33), (4, 0.17))
"""Number of objects and its probability."""
MAX_PLACEMENTS = 60
"""Random positions that are tried for an object."""


@dataclass(frozen=True)
class Appearance:
    """Common properties of the objects of one group; ``size`` is "small", "medium" or "large"."""

    shape: str
    color: str
    texture: str
    size: str


@dataclass(frozen=True)
class SceneObject:
    """One object: center and radius as fractions of the image's side, angle in degrees, color in
    [0, 255]."""

    appearance: Appearance
    x: float
    y: float
    radius: float
    angle: float
    color: tuple[float, float, float]


@dataclass(frozen=True)
class Scene:
    """Groups of similar objects on a background."""

    background: str  # one of ``BACKGROUNDS``
    groups: tuple[
        tuple[SceneObject, ...], ...
    ]  # in drawing order; later objects cover earlier ones
    light: float  # direction, in radians
    seed: int  # of the noise in the background and in the pixels


def draw_layout(random: Generator) -> Scene:
    """Draw a layout of 1 to 4 objects that overlap little."""
    background = BACKGROUNDS[random.integers(len(BACKGROUNDS))]
    counts, chances = zip(*OBJECT_COUNTS, strict=True)
    remaining = int(random.choice(counts, p=chances))
    groups: list[tuple[SceneObject, ...]] = []
    while remaining:
        count = (
            int(random.integers(2, min(remaining, 3) + 1))
            if remaining > 1 and random.random() < 0.25
            else 1
        )
        appearance = _draw_appearance(random, background, [group[0].appearance for group in groups])
        placed = [item for group in groups for item in group]
        group: list[SceneObject] = []
        for _ in range(count):
            group.append(place_object(random, appearance, [*placed, *group]))
        groups.append(tuple(group))
        remaining -= count
    return Scene(
        background, tuple(groups), float(random.uniform(0, 2 * np.pi)), int(random.integers(2**32))
    )


def _draw_appearance(random: Generator, background: str, others: list[Appearance]) -> Appearance:
    """Draw an appearance whose pair of shape and color is new, so that a caption identifies the
    group."""
    while True:
        shape = SHAPES[random.integers(len(SHAPES))]
        color = tuple(COLORS)[random.integers(len(COLORS))]
        taken = any((other.shape, other.color) == (shape, color) for other in others)
        if color != CAMOUFLAGED.get(background) and not taken:
            texture = str(random.choice(TEXTURES, p=(0.46, 0.18, 0.18, 0.18)))
            return Appearance(shape, color, texture, str(random.choice(tuple(RADII))))


def place_object(
    random: Generator,
    appearance: Appearance,
    others: list[SceneObject],
    at: tuple[float, float] | None = None,
) -> SceneObject:
    """Return an object at ``at``, or at the tried position that overlaps the other objects
    least."""
    low, high = RADII[appearance.size]
    radius = float(random.uniform(low, high))
    best = at or _free_position(random, radius, others)
    shade = random.uniform(0.9, 1.06) * np.array(COLORS[appearance.color]) + random.uniform(
        -8, 8, size=3
    )
    red, green, blue = (float(value) for value in np.clip(shade, 0, 255))
    return SceneObject(
        appearance, *best, radius, float(random.uniform(-14, 14)), (red, green, blue)
    )


def _free_position(
    random: Generator, radius: float, others: list[SceneObject]
) -> tuple[float, float]:
    best, least = (0.5, 0.5), np.inf
    for _ in range(MAX_PLACEMENTS):
        x, y = (float(value) for value in random.uniform(radius + 0.01, 0.99 - radius, size=2))
        overlaps = (radius + other.radius - np.hypot(x - other.x, y - other.y) for other in others)
        overlap = max(overlaps, default=-1.0)
        if overlap < least:
            best, least = (x, y), overlap
        if overlap < 0:
            break
    return best
