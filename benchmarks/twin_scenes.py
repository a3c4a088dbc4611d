"""Corpus of twin scenes, where a bag of words does not tell two images apart."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.random import Generator

from bifocal.datasets.base import SPLITS, Corpus
from bifocal.datasets.scenes.captions import (
    ABOVE,
    ADJECTIVES,
    BELOW,
    LEFT,
    NOUNS,
    NUMBERS,
    ON,
    PLURALS,
    RIGHT,
    Sentence,
    as_in_text,
)
from bifocal.datasets.scenes.layout import (
    BACKGROUNDS,
    CAMOUFLAGED,
    COLORS,
    SHAPES,
    Appearance,
    Scene,
    SceneObject,
    place_object,
)
from bifocal.datasets.scenes.scenes import check_sizes, read_scenes

Kind = Literal["binding", "relation", "count", "negation"]
KINDS: tuple[Kind, ...] = ("binding", "relation", "count", "negation")
COUNTS = ((1, 2), (1, 3), (2, 3))
NEAR, FAR = (0.2, 0.34), (0.66, 0.8)
"""Ranges of the two centers along the axis of their relation; the difference exceeds
``MIN_DISTANCE``."""
ACROSS = (0.36, 0.64)
"""Range of the centers along the other axis, narrower than the distance along the axis of the
relation."""
RELATED = (
    "{0} {is0} {relation} {1} {on}",
    "{on}, {0} {is0} {relation} {1}",
    "there {is0} {0} {relation} {1} {on}",
    "{0} {relation} {1}, {on}",
)
COUNTED = (
    "{0} and {1} {on}",
    "{on} there are {0} and {1}",
    "a picture of {0} and {1} {on}",
    "{0} and {1}, {on}",
)
NEGATED = (
    "{0} but no {1} {on}",
    "{on} there {is0} {0} but no {1}",
    "{0} and no {1} {on}",
    "{0} but no {1}, {on}",
)
CAPTIONS_PER_IMAGE = 5


@dataclass(frozen=True)
class _Words:
    """Words for the shapes and colors of both twins, and the words that the twins share."""

    noun: dict[str, str]
    color: dict[str, str]
    form: str
    on: str
    relation: str
    first: int

    def name(self, group: Sequence[SceneObject], kind: Kind, *, absent: bool = False) -> str:
        """Return the noun phrase of a group: "a red star", "two red stars" of a count, "red star"
        if it is absent."""
        appearance = group[0].appearance
        color, noun = self.color[appearance.color], self.noun[appearance.shape]
        if len(group) > 1:
            noun = PLURALS.get(noun, noun + "s")
        article = (
            ""
            if absent
            else NUMBERS[len(group)]
            if kind == "count"
            else "an"
            if color[0] in "aeiou"
            else "a"
        )
        return f"{article} {color} {noun}".strip()


def draw_twins(kind: Kind, random: Generator) -> tuple[Scene, Scene]:
    """Return two scenes that differ in the one thing that ``TwinScenes`` describes for ``kind``."""
    background = BACKGROUNDS[random.integers(len(BACKGROUNDS))]
    light, seed = float(random.uniform(0, 2 * np.pi)), int(random.integers(2**32))
    first, second = _appearances(background, random)
    sides: list[tuple[tuple[SceneObject, ...], ...]]
    if kind in ("binding", "relation"):
        exchanged = (second, first)
        if kind == "binding":
            exchanged = (replace(first, color=second.color), replace(second, color=first.color))
        positions = _related_positions(random)
        sides = [
            tuple(
                (place_object(random, look, [], at),)
                for look, at in zip(looks, positions, strict=True)
            )
            for looks in ((first, second), exchanged)
        ]
    elif kind == "count":
        counts = random.permutation(COUNTS[random.integers(len(COUNTS))]).tolist()
        sides = [_groups((first, second), numbers, random) for numbers in (counts, counts[::-1])]
    else:
        sides = [_groups((look,), (1,), random) for look in (first, second)]
    one, other = (Scene(background, groups, light, seed) for groups in sides)
    return one, other


def describe_twins(
    kind: Kind, twins: tuple[Scene, Scene], count: int, random: Generator
) -> tuple[list[Sentence], list[Sentence]]:
    """Return ``count`` sentences about each twin; sentence i of both has the same words, up to a/an
    and plurals."""
    pairs: dict[str, tuple[Sentence, Sentence]] = {}
    while len(pairs) < count:
        words = _words(kind, twins, random)
        one, other = _sentence(kind, *twins, words), _sentence(kind, *twins[::-1], words)
        pairs.setdefault(one.text, (one, other))
    ones, others = zip(*pairs.values(), strict=True)
    return list(ones), list(others)


def _appearances(background: str, random: Generator) -> tuple[Appearance, Appearance]:
    """Return two appearances of different shapes and colors, but of one texture and size."""
    visible = [color for color in COLORS if color != CAMOUFLAGED.get(background)]
    shapes, colors = random.permutation(SHAPES)[:2], random.permutation(visible)[:2]
    one, other = (
        Appearance(str(shape), str(color), "plain", "medium")
        for shape, color in zip(shapes, colors, strict=True)
    )
    return one, other


def _related_positions(random: Generator) -> list[tuple[float, float]]:
    """Return two centers; the first is left of the second, or above it."""
    along = [float(random.uniform(*bounds)) for bounds in (NEAR, FAR)]
    across = [float(random.uniform(*ACROSS)) for _ in along]
    if random.random() < 0.5:
        return list(zip(along, across, strict=True))
    return list(zip(across, along, strict=True))


def _groups(
    looks: Sequence[Appearance], counts: Sequence[int], random: Generator
) -> tuple[tuple[SceneObject, ...], ...]:
    placed: list[SceneObject] = []
    groups = []
    for look, count in zip(looks, counts, strict=True):
        group = []
        for _ in range(count):
            group.append(place_object(random, look, placed))
            placed.append(group[-1])
        groups.append(tuple(group))
    return tuple(groups)


def _words(kind: Kind, twins: tuple[Scene, Scene], random: Generator) -> _Words:
    def one(words: Sequence[str]) -> str:
        return words[int(random.integers(len(words)))]

    looks = [group[0].appearance for scene in twins for group in scene.groups]
    related = kind in ("binding", "relation")
    first = int(random.integers(2)) if related else 0
    relation = ""
    if related:
        (before,), (after,) = twins[0].groups
        horizontal = after.x - before.x > after.y - before.y
        relation = one(((LEFT, RIGHT) if horizontal else (ABOVE, BELOW))[first])
    return _Words(
        noun={shape: one(NOUNS[shape]) for shape in sorted({look.shape for look in looks})},
        color={color: one(ADJECTIVES[color]) for color in sorted({look.color for look in looks})},
        form=one(RELATED if related else COUNTED if kind == "count" else NEGATED),
        on=one(ON[twins[0].background]),
        relation=relation,
        first=first,
    )


def _sentence(kind: Kind, scene: Scene, twin: Scene, words: _Words) -> Sentence:
    if kind == "negation":
        named = [(words.name(scene.groups[0], kind), scene.groups[0])]
        names = [named[0][0], words.name(twin.groups[0], kind, absent=True)]
    else:
        groups = [scene.groups[words.first], scene.groups[1 - words.first]]
        named = [(words.name(group, kind), group) for group in groups]
        names = [name for name, _ in named]
    verb = "is" if len(named[0][1]) == 1 else "are"
    text = words.form.format(*names, is0=verb, relation=words.relation, on=words.on)
    text = text[0].upper() + text[1:] + "."
    return Sentence(text, tuple((as_in_text(phrase, text), group) for phrase, group in named))


class TwinScenes:
    """Pairs of scenes whose captions have the same words in another order.

    "A red star above a blue ring" and "a blue star above a red ring" are the captions of two twins,
    images 2 i and 2 i + 1 of a split. Pairs of four kinds alternate. The twins exchange the colors
    of two objects (binding), their positions (relation), the numbers of two groups ("two red stars
    and one blue ring"), or their objects ("a red star but no blue ring"). Sentence j of an image is
    sentence j of its twin with two parts exchanged. A model that reads captions as bags of words
    cannot tell an image from its twin.

    Phrases, boxes and labels are as in ``Scenes``. The same seed gives the same bytes.

    Args:
        seed: seed of images and captions.
        train, val, test: number of images per split; even.
        size: side of the square images, in pixels.

    Raises:
        ValueError: a number is odd, negative, or the images are too small.

    Example:
        >>> for number in (0, 1):
        ...     print(TwinScenes(seed=1).scene("train", number)[1][1].text)
        A red star to the right of an orange rhombus, in a cloudy sky.
        An orange star to the right of a red rhombus, in a cloudy sky.
    """

    def __init__(
        self, seed: int = 0, train: int = 4000, val: int = 400, test: int = 400, size: int = 128
    ) -> None:
        self.seed, self.size = seed, size
        self.counts = (train, val, test)
        check_sizes(self.counts, size)
        for split, count in zip(SPLITS, self.counts, strict=True):
            if count % 2:
                raise ValueError(
                    f"TwinScenes: {split} is {count}, expected an even number: every image has "
                    "a twin"
                )

    def kind(self, number: int) -> Kind:
        """Return what image ``number`` exchanges with its twin."""
        return KINDS[number // 2 % len(KINDS)]

    def scene(self, split: str, number: int) -> tuple[Scene, list[Sentence]]:
        """Return scene ``number`` (from 0) of ``split`` and its captions."""
        random = np.random.default_rng([self.seed, SPLITS.index(split), number // 2])
        twins = draw_twins(self.kind(number), random)
        sentences = describe_twins(self.kind(number), twins, CAPTIONS_PER_IMAGE, random)
        return twins[number % 2], sentences[number % 2]

    def read(self, output_dir: Path) -> Corpus:
        """Draw every scene and save it below ``output_dir`` as ``<split>/<number>.jpg``."""
        return read_scenes(self.scene, self.counts, self.size, output_dir)
