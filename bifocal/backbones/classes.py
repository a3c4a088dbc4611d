"""Classes of a backbone's classifier: names, definitions, and rows of weights."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from bifocal.onnx.pointing.similarity import unit

Array = NDArray[Any]
IMAGENET = Path(__file__).with_name("imagenet.txt")
"""Synonyms and WordNet's definition of each class, in the order of timm's classifiers."""

WEIGHT = "weight"
PEOPLE = ("person", "man", "woman", "child")
WORN = frozenset(
    [
        "abaya",
        "academic gown",
        "apron",
        "ballplayer",
        "bathing cap",
        "bib",
        "bikini",
        "bonnet",
        "bow tie",
        "brassiere",
        "cardigan",
        "cloak",
        "cowboy boot",
        "cowboy hat",
        "crash helmet",
        "diaper",
        "football helmet",
        "fur coat",
        "gown",
        "groom",
        "jean",
        "jersey",
        "kimono",
        "lab coat",
        "Loafer",
        "maillot",
        "military uniform",
        "miniskirt",
        "mortarboard",
        "overskirt",
        "pajama",
        "poncho",
        "running shoe",
        "sandal",
        "sarong",
        "scuba diver",
        "sock",
        "sombrero",
        "suit",
        "sunglass",
        "sunglasses",
        "sweatshirt",
        "swimming trunks",
        "trench coat",
        "vestment",
        "wig",
        "Windsor tie",
    ]
)
"""Classes of ImageNet whose photographs show a person: ImageNet has no class of people."""


@dataclass(frozen=True)
class Classes:
    """K classes.

    Attributes:
        names: synonyms of each class.
        definitions: a sentence for each class.
        weight: (K, C), rows of a linear classifier on the C channels of the last map; None for the
            backbone's own.
        shown_with: words for what images of each class show too, such as "person" for a suit; only
            pointing reads them.
    """

    names: Sequence[Sequence[str]]
    definitions: Sequence[str]
    weight: ArrayLike | None = None
    shown_with: Mapping[int, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = {
            len(self.names),
            len(self.definitions),
            *([] if self.weight is None else [len(np.asarray(self.weight))]),
        }
        if len(counts) != 1 or not all(self.names):
            rows = "no rows" if self.weight is None else f"{len(np.asarray(self.weight))} rows"
            raise ValueError(
                f"{len(self.names)} names, {len(self.definitions)} definitions and {rows} of a "
                "classifier: expected the same number of each, and at least one synonym in "
                "each name"
            )


def imagenet_classes() -> Classes:
    """Return the 1,000 classes of ImageNet, in the order of timm's classifiers, with WordNet's
    definitions.

    Clothes are shown with people.
    """
    definitions = IMAGENET.read_text(encoding="utf-8").splitlines()
    names = [definition.partition(": ")[0].split(", ") for definition in definitions]
    shown_with = {k: PEOPLE for k, synonyms in enumerate(names) if WORN.intersection(synonyms)}
    return Classes(names, definitions, shown_with=shown_with)


def class_vectors(synonyms: Array, classes: Array, definitions: Array) -> Array:
    """Return the vectors (K, d) of K classes: normalized sums of their synonyms (S, d) and
    definitions (K, d).

    ``classes`` (S,) is the number of each synonym's class. Each part is normalized before the sum.
    """
    names = np.zeros_like(definitions)
    np.add.at(names, classes, unit(synonyms))
    return unit(unit(names) + unit(definitions))


def write_classes(file: Path, classes: Classes) -> None:
    """Write classes with their rows as one safetensors file; names and definitions are JSON in its
    metadata."""
    if classes.weight is None:
        raise ValueError("a file of classes needs the rows of their classifier")
    texts = {
        "names": classes.names,
        "definitions": classes.definitions,
        "shown_with": classes.shown_with,
    }
    save_file(
        {WEIGHT: np.ascontiguousarray(classes.weight)},
        file,
        {name: json.dumps(t) for name, t in texts.items()},
    )


def read_classes(file: Path) -> Classes:
    """Read a file of ``write_classes``."""
    with safe_open(file, framework="np") as opened:
        texts = opened.metadata() or {}
        missing = [name for name in ("names", "definitions") if name not in texts]
        if missing or WEIGHT not in opened.keys():  # noqa: SIM118
            raise ValueError(
                f"{file} has no {' and no '.join(missing or [WEIGHT])}: write it with "
                "write_classes()"
            )
        names, definitions = json.loads(texts["names"]), json.loads(texts["definitions"])
        shown_with = {
            int(number): words
            for number, words in json.loads(texts.get("shown_with", "{}")).items()
        }
        return Classes(
            names, definitions, np.asarray(opened.get_tensor(WEIGHT), np.float32), shown_with
        )
