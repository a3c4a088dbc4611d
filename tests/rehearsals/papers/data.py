"""The data that recipes name: miniature corpora and files in their published layouts, written where
recipes look."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.rehearsals.papers.layouts.coco import write_annotations
from tests.rehearsals.papers.layouts.detector_arrays import write_detector_arrays
from tests.rehearsals.papers.layouts.entities import write_flickr30k_entities
from tests.rehearsals.papers.layouts.karpathy import coco_id, write_coco, write_flickr30k
from tests.rehearsals.papers.layouts.labels import (
    write_class_folders,
    write_lamem,
    write_mediaeval,
    write_voc,
)
from tests.rehearsals.papers.layouts.referit import write_referit
from tests.rehearsals.papers.layouts.region_features import write_bottom_up, write_precomputed
from tests.rehearsals.papers.layouts.texts import (
    write_elmo,
    write_skip_thoughts,
    write_word2vec,
    write_wordnet,
)
from tests.rehearsals.papers.layouts.visual_genome import write_visual_genome
from tests.rehearsals.papers.pictures import Picture, draw
from tests.rehearsals.papers.stand_ins import STAND_INS, write_stand_in

DATA = "../data/"
"""Where recipes look for data, relative to the folder of a checkout."""
SIZES = {"train": 480, "val": 64, "test": 288}
"""Images per split of a miniature corpus."""
WEIGHTS = "weights/"


@cache
def coco_pictures() -> list[Picture]:
    """Return the photographs of COCO, which Visual Genome shares."""
    return draw(seed=1, **SIZES)


@cache
def flickr_pictures() -> list[Picture]:
    """Return the photographs of Flickr30k, which Flickr30k Entities shares."""
    return draw(seed=2, **SIZES)


@cache
def pretraining_pictures() -> list[Picture]:
    """Return the photographs of ImageNet."""
    return draw(seed=3, train=200, val=40, test=0)


@cache
def voc_pictures() -> list[Picture]:
    """Return the photographs of PASCAL VOC: twice as many, because an image has nothing but its few
    labels."""
    return draw(seed=4, **SIZES | {"train": 2 * SIZES["train"]})


def _captions() -> list[str]:
    pictures = [*coco_pictures(), *flickr_pictures()]
    return [sentence.text for picture in pictures for sentence in picture.sentences]


def _write_coco(root: Path) -> None:
    write_coco(coco_pictures(), root)
    write_annotations(coco_pictures(), root)
    (root / "captions_val2014.json").symlink_to("annotations/captions_val2014.json")
    write_bottom_up(coco_pictures(), root / "bottom_up", coco_id)


WRITERS: dict[str, Callable[[Path], None]] = {
    "coco": _write_coco,
    "detector_arrays": lambda root: write_detector_arrays(flickr_pictures(), root),
    "elmo": lambda root: write_elmo(_captions(), root),
    "f30k_precomp": lambda root: write_precomputed(flickr_pictures(), root),
    "flickr30k": lambda root: write_flickr30k(flickr_pictures(), root),
    "flickr30k_entities": lambda root: write_flickr30k_entities(flickr_pictures(), root),
    "imagenet": lambda root: write_class_folders(pretraining_pictures(), root),
    "VOC2007": lambda root: write_voc(voc_pictures(), root),
    "lamem": lambda root: write_lamem(coco_pictures(), root),
    "mediaeval": lambda root: write_mediaeval(flickr_pictures(), root),
    "referit": lambda root: write_referit(flickr_pictures(), root),
    "skip_thoughts": lambda root: write_skip_thoughts(_captions(), root),
    "visual_genome": lambda root: write_visual_genome(coco_pictures(), root),
    "word2vec": lambda root: write_word2vec(
        _captions(), root / "GoogleNews-vectors-negative300.bin"
    ),
    "wordnet": lambda root: write_wordnet(_captions(), root),
}
"""Writer of each folder below ``../data``."""


def named_data(values: Mapping[str, Any]) -> set[str]:
    """Return the folders and the files of weights below ``../data`` that the parameters ``values``
    name."""
    names = {path.removeprefix(DATA) for path in strings_of(values) if path.startswith(DATA)}
    return {name if name.startswith(WEIGHTS) else name.split("/")[0] for name in names}


def write_data(name: str, folder: Path) -> None:
    """Write ``name`` of ``named_data`` below ``folder`` if it does not exist.

    Raises:
        ValueError: a folder has no writer.
    """
    path = folder / name
    if path.exists():
        return
    if name.startswith(WEIGHTS):
        write_stand_in(STAND_INS[path.stem], path)
        return
    if name not in WRITERS:
        raise ValueError(f"{DATA}{name}: no writer; there are {', '.join(sorted(WRITERS))}")
    partial = folder / f"{name}.partial"
    partial.mkdir(parents=True)
    WRITERS[name](partial)
    partial.rename(path)


def strings_of(value: Any) -> Iterator[str]:
    """Yield the strings in a tree of parameters."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from strings_of(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from strings_of(entry)
