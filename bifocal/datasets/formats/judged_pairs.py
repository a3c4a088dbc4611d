"""Images and captions that people judged to match, beyond the pairs of a corpus: ECCV Caption and CxC.

Chun et al., "ECCV Caption", ECCV 2022; Parekh et al., "Crisscrossed Captions", EACL 2021: judgments of COCO's test set.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import pandas as pd

from bifocal.datasets.formats.files import read_json

Judgments = Literal["eccv", "cxc"]
NAMES: Mapping[Judgments, str] = {"eccv": "ECCV Caption", "cxc": "CxC"}
MATCH = 3.0
"""Least mean score, of 0 to 5, of a matching pair in CxC."""
COLUMNS = ("caption", "image", "agg_score")


@dataclass(frozen=True)
class JudgedPairs:
    """Correct candidates by query: captions by image id, and images by caption id. Other queries are not judged."""

    captions: Mapping[str, frozenset[str]]
    images: Mapping[str, frozenset[str]]


def read_judged_pairs(
    folder: Path, judgments: Judgments, split: str, own: Iterable[tuple[str, str]] = ()
) -> JudgedPairs:
    """Read ``<judgments>_image_to_caption.json`` and ``<judgments>_caption_to_image.json``, as in the package
    ``eccv_caption``; or, for CxC, ``sits_<split>.csv`` of its authors.

    Args:
        own: pairs (image_id, caption_id) of the corpus, which the file of CxC adds to.

    Raises:
        ValueError: a file is missing or invalid.
    """
    files = [folder / f"{judgments}_{name}.json" for name in ("image_to_caption", "caption_to_image")]
    scores = folder / f"sits_{split}.csv"
    if judgments == "cxc" and not files[0].is_file() and scores.is_file():
        return _grouped([*own, *_read_scores(scores)])
    captions, images = (_read_lists(path, NAMES[judgments]) for path in files)
    return JudgedPairs(captions, images)


def _read_lists(path: Path, corpus: str) -> dict[str, frozenset[str]]:
    lists: dict[str, Any] = read_json(path, corpus)
    for query, candidates in lists.items():
        if not isinstance(candidates, list) or not candidates:
            raise ValueError(f"{path}: {query!r} has {candidates!r}, expected a list of at least one id")
    return {query: frozenset(map(str, candidates)) for query, candidates in lists.items()}


def _read_scores(path: Path) -> Iterable[tuple[str, str]]:
    """Return the matching pairs of ``COCO_val2014:sentid:732091,COCO_val2014_000000365325.jpg,2.2,c2i_intrasim``."""
    table = pd.read_csv(path)
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise ValueError(f"{path} has no column {', '.join(missing)}; it has {', '.join(table.columns)}")
    incomplete = table[list(COLUMNS)].isna().any(axis=1)
    if incomplete.any():
        raise ValueError(f"{path}, line {int(incomplete.to_numpy().argmax()) + 2}: the row is not complete")
    matching = table[table["agg_score"] >= MATCH]
    image_ids = [str(int(PurePosixPath(name).stem.rpartition("_")[2])) for name in matching["image"]]
    return zip(image_ids, (name.rpartition(":")[2] for name in matching["caption"]), strict=True)


def _grouped(pairs: Iterable[tuple[str, str]]) -> JudgedPairs:
    captions: dict[str, set[str]] = {}
    images: dict[str, set[str]] = {}
    for image_id, caption_id in pairs:
        captions.setdefault(image_id, set()).add(caption_id)
        images.setdefault(caption_id, set()).add(image_id)
    by_image, by_caption = ({query: frozenset(found) for query, found in one.items()} for one in (captions, images))
    return JudgedPairs(by_image, by_caption)
