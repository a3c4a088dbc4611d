"""Captions of a scene from a grammar, with their noun phrases and the objects that each phrase
names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from numpy.random import Generator

from bifocal.datasets.scenes.layout import Scene, SceneObject

NOUNS = {
    "circle": ("circle", "disc"),
    "square": ("square", "box"),
    "triangle": ("triangle",),
    "star": ("star",),
    "ring": ("ring", "hoop"),
    "cross": ("cross", "plus sign"),
    "hexagon": ("hexagon",),
    "heart": ("heart",),
    "diamond": ("diamond", "rhombus"),
    "crescent": ("crescent", "moon"),
}
PLURALS = {"box": "boxes", "cross": "crosses", "rhombus": "rhombuses"}
ADJECTIVES = {
    "red": ("red",),
    "orange": ("orange",),
    "yellow": ("yellow",),
    "green": ("green",),
    "blue": ("blue",),
    "purple": ("purple", "violet"),
    "pink": ("pink",),
    "white": ("white",),
    "plain": ("plain", "smooth"),
    "striped": ("striped",),
    "dotted": ("dotted", "spotted"),
    "checkered": ("checkered", "chequered"),  # codespell:ignore chequered
    "small": ("small", "little", "tiny"),
    "medium": ("medium-sized",),
    "large": ("large", "big"),
}
PATTERNS = {
    "striped": "with stripes",
    "dotted": "with dots",
    "checkered": "with a checkered pattern",
}
ON = {
    "grass": ("on grass", "on a lawn", "on the green grass"),
    "sand": ("on sand", "on a sandy beach", "on the sand"),
    "brick": ("on a brick wall", "in front of bricks", "against a wall of bricks"),
    "wood": ("on wooden boards", "on a wooden floor", "on wood"),
    "sky": ("in a cloudy sky", "in the blue sky", "among clouds"),
    "water": ("on water", "on the waves", "on the sea"),
    "snow": ("on snow", "in the snow", "on a snowy field"),
    "stone": ("on a stone pavement", "on grey stone", "on paving slabs"),  # codespell:ignore grey
    "night": ("in a night sky", "under the stars at night", "in the dark of night"),
}
NUMBERS = ("no", "one", "two", "three", "four")
LEFT = ("to the left of", "left of", "on the left side of")
RIGHT = ("to the right of", "right of", "on the right side of")
ABOVE = ("above", "over", "higher up than")
BELOW = ("below", "under", "lower down than")
MIN_DISTANCE = 0.14
"""Distance of two centers, as a fraction of the image's side, from which a caption may say "left
of" or "above"."""


T = TypeVar("T")


@dataclass(frozen=True)
class Sentence:
    """A caption and its noun phrases, each with the objects that it names; every phrase is a
    substring of ``text``."""

    text: str
    phrases: tuple[tuple[str, tuple[SceneObject, ...]], ...]


def describe(scene: Scene, count: int, random: Generator) -> list[Sentence]:
    """Return ``count`` different sentences about the scene."""
    return _different(count, lambda: _sentence(scene, random))


def name_groups(scene: Scene, count: int, random: Generator) -> list[Sentence]:
    """Return ``count`` different short sentences, as a user searches: one group, and sometimes the
    background."""
    return _different(count, lambda: _short_sentence(scene, random))


def _different(count: int, draw: Callable[[], Sentence]) -> list[Sentence]:
    sentences: dict[str, Sentence] = {}
    while len(sentences) < count:
        sentence = draw()
        sentences.setdefault(sentence.text, sentence)
    return list(sentences.values())


def _short_sentence(scene: Scene, random: Generator) -> Sentence:
    group = _one(scene.groups, random)
    phrase = _noun_phrase(group, random)
    phrase = phrase[0].upper() + phrase[1:]
    on = f" {_one(ON[scene.background], random)}" if random.random() < 0.5 else ""
    return Sentence(f"{phrase}{on}.", ((phrase, group),))


def _sentence(scene: Scene, random: Generator) -> Sentence:
    order = [scene.groups[number] for number in random.permutation(len(scene.groups))]
    if len(order) > 2 and random.random() < 0.1:
        order.pop()
    named = [(_noun_phrase(group, random), group) for group in order]
    on = _one(ON[scene.background], random)
    relation = _relation(order[0], order[1], random) if len(order) > 1 else None
    relate = random.random() < 0.6
    text = (
        _relational(named, relation, on, random)
        if relation and relate
        else _listing(named, on, random)
    )
    text = text[0].upper() + text[1:] + "."
    # The first letter of the text is now a capital, so that the first phrase may begin with one.
    return Sentence(text, tuple((as_in_text(phrase, text), group) for phrase, group in named))


def _relational(
    named: Sequence[tuple[str, Sequence[SceneObject]]], relation: str, on: str, random: Generator
) -> str:
    (first, group), (second, _), *others = named
    rest = _joined([phrase for phrase, _ in others])
    also = {
        0: f", with {rest}",
        1: f"; {rest} {_is(others[0][1]) if len(others) == 1 else 'are'} nearby",
    }
    tail = also[int(random.integers(2))] if rest else ""
    form = random.integers(4)
    if form == 0:
        return f"{first} {_is(group)} {relation} {second} {on}{tail}"
    if form == 1:
        return f"{on}, {first} {_is(group)} {relation} {second}{tail}"
    if form == 2:
        return f"there {_is(group)} {first} {relation} {second}{tail}"
    return f"{first} {relation} {second}{tail}, {on}"


def _listing(named: Sequence[tuple[str, Sequence[SceneObject]]], on: str, random: Generator) -> str:
    positions = [_position(group, random) for _, group in named]
    # Captions of a single object are short: their position distinguishes them from captions of
    # other scenes.
    chance = 0.9 if len(named) == 1 else 0.45
    placed = [
        f"{phrase} {position}" if position and random.random() < chance else phrase
        for (phrase, _), position in zip(named, positions, strict=True)
    ]
    everything = _joined(placed)
    first = named[0][1]
    form = random.integers(5)
    if form == 0:
        verb = "lies" if len(first) == 1 and len(named) == 1 else "lie"
        return f"{everything} {verb} {on}"
    if form == 1:
        return f"{on} there {_is(first)} {everything}"
    if form == 2:
        return f"a {_one(('picture', 'photo', 'view'), random)} of {everything} {on}"
    if form == 3 and positions[0]:
        phrases = [named[0][0], *placed[1:]]
        return f"{positions[0]} {on}, {_joined(phrases)}"
    return f"{everything}, {on}"


def _noun_phrase(group: Sequence[SceneObject], random: Generator) -> str:
    appearance = group[0].appearance
    noun = _one(NOUNS[appearance.shape], random)
    words = [_one(ADJECTIVES[appearance.color], random)]
    pattern = ""
    if appearance.texture == "plain":
        if random.random() < 0.2:
            words.insert(0, _one(ADJECTIVES["plain"], random))
    elif random.random() < 0.25:
        pattern = f" {PATTERNS[appearance.texture]}"
    elif random.random() < 0.85:
        words.insert(int(random.integers(2)), _one(ADJECTIVES[appearance.texture], random))
    if random.random() < (0.15 if appearance.size == "medium" else 0.65):
        words.insert(0, _one(ADJECTIVES[appearance.size], random))
    if len(group) > 1:
        return f"{NUMBERS[len(group)]} {' '.join(words)} {PLURALS.get(noun, noun + 's')}{pattern}"
    article = "an" if words[0][0] in "aeiou" else "a"
    return f"{article} {' '.join(words)} {noun}{pattern}"


def _relation(
    first: Sequence[SceneObject], second: Sequence[SceneObject], random: Generator
) -> str | None:
    """Return a spatial relation that holds between all objects of one group and all objects of the
    other."""
    gaps = [(b.x - a.x, b.y - a.y) for a in first for b in second]
    holds = [
        words
        for words, distance in (
            (LEFT, min(dx for dx, _ in gaps)),
            (RIGHT, min(-dx for dx, _ in gaps)),
            (ABOVE, min(dy for _, dy in gaps)),
            (BELOW, min(-dy for _, dy in gaps)),
        )
        if distance > MIN_DISTANCE
    ]
    return _one(_one(holds, random), random) if holds else None


def _position(group: Sequence[SceneObject], random: Generator) -> str:
    """Return the ninth of the image that contains a single object, in words; "" for several
    objects."""
    if len(group) > 1:
        return ""
    item = group[0]
    column, row = (0 if value < 0.37 else 2 if value > 0.63 else 1 for value in (item.x, item.y))
    across, down = (
        ("left", "middle", "right")[column],
        (_one(("top", "upper"), random), "", "bottom")[row],
    )
    if column == 1 and row == 1:
        return _one(("in the middle", "in the centre"), random)  # codespell:ignore centre
    if row == 1:
        return f"on the {across}"
    if column == 1:
        return _one(
            ("at the top", "near the upper edge")
            if row == 0
            else ("at the bottom", "near the lower edge"),
            random,
        )
    return f"in the {down} {across} {_one(('corner', 'part'), random)}"


def _joined(phrases: Sequence[str]) -> str:
    if len(phrases) < 2:
        return "".join(phrases)
    return f"{', '.join(phrases[:-1])} and {phrases[-1]}"


def _is(group: Sequence[SceneObject]) -> str:
    return "is" if len(group) == 1 else "are"


def _one(words: Sequence[T], random: Generator) -> T:
    return words[int(random.integers(len(words)))]


def as_in_text(phrase: str, text: str) -> str:
    """Return ``phrase``, with a capital if it begins the text."""
    return phrase if phrase in text else phrase[0].upper() + phrase[1:]
