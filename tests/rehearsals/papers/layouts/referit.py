"""ReferIt in the files of Hu et al., CVPR 2016."""

import json
from collections.abc import Sequence
from pathlib import Path

from bifocal.datasets.base import SPLITS
from tests.rehearsals.papers.pictures import Picture


def write_referit(pictures: Sequence[Picture], root: Path) -> None:
    """Write boxes, sizes, and per split the descriptions and the list of images; boxes include
    their last pixel.

    Every listed image has a description, as in the published lists: pictures without single objects
    are left out.
    """
    boxes: dict[str, list[float]] = {}
    queries: dict[str, dict[str, list[str]]] = {split: {} for split in SPLITS}
    for picture in pictures:
        picture.save(root / "images" / f"{picture.number}.jpg")
        names: dict[int, list[str]] = {}
        for sentence in picture.sentences:
            for phrase, group in sentence.phrases:
                if len(group) == 1:
                    words = (
                        phrase.split(" ", 1)[1]
                        if phrase.lower().startswith(("a ", "an "))
                        else phrase
                    )
                    names.setdefault(picture.objects().index(group[0]), []).append(words)
        for index, item in enumerate(picture.objects()):
            region = f"{picture.number}_{index + 1}"
            x0, y0, x1, y1 = picture.box(item)
            boxes[region] = [x0, y0, x1 - 1, y1 - 1]
            if index in names:
                queries[picture.split][region] = names[index]
    sizes = {str(picture.number): list(picture.size) for picture in pictures}
    for name, value in (("bbox", boxes), ("imsize", sizes)):
        (root / f"referit_{name}.json").write_text(json.dumps(value))
    for split in SPLITS:
        (root / f"referit_query_{split}.json").write_text(json.dumps(queries[split]))
        described = {region.split("_")[0] for region in queries[split]}
        listed = [str(picture.number) for picture in pictures if str(picture.number) in described]
        (root / f"referit_{split}_imlist.txt").write_text("\n".join(listed) + "\n")
