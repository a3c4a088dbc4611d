"""SugarCrepe: captions of COCO against fluent hard negatives."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pandas as pd

from bifocal.datasets.formats.files import read_json
from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.compositionality.choices import choice_result

LABELS: Mapping[str, str] = {
    "add_att": "an attribute added",
    "add_obj": "an object added",
    "replace_att": "an attribute replaced",
    "replace_obj": "an object replaced",
    "replace_rel": "a relation replaced",
    "swap_att": "attributes swapped",
    "swap_obj": "objects swapped",
}
"""Published files, without suffix."""


class SugarCrepe:
    """Accuracy of choosing the caption of a COCO image over a hard negative that is as fluent, by
    kind of edit.

    Hsieh et al., "SugarCrepe: fixing hackable benchmarks for vision-language compositionality",
    NeurIPS 2023. Equal scores count half. The images are 1,561 of COCO's val2017: read them as a
    split of ``COCOInstances``.

    Args:
        folder: ``add_att.json`` and the six other files, as published; None skips the evaluator.
    """

    title = "SugarCrepe"

    def __init__(self, folder: Path | str | None = None) -> None:
        self.folder = folder

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; raise ``ValueError`` if its split lacks an image."""
        if self.folder is None:
            return Result(
                self.title, skipped="No captions: give the folder with the files of SugarCrepe."
            )
        images = subject.split.images[["path", "image_id"]].dropna()
        ids = {
            PurePosixPath(path).name: image_id for path, image_id in images.itertuples(index=False)
        }
        choices = read_choices(Path(self.folder))
        absent = sorted(set(choices["image"]) - ids.keys())
        if absent:
            raise ValueError(
                f"{len(absent)} images of {self.folder} are not in the split "
                f"{subject.split_name}, such as {absent[0]}: evaluate COCO's val2017, for "
                "example {name: COCOInstances, test: val2017}"
            )
        choices = choices.assign(image_id=choices["image"].map(ids))
        note = "Percentage of captions that fit their image better than the hard negative does."
        return choice_result(self.title, "sugar_crepe", choices, LABELS, subject, note)


def read_choices(folder: Path) -> pd.DataFrame:
    """Return image (file name), edit, caption and edited of all files."""
    rows = []
    for name in LABELS:
        path = folder / f"{name}.json"
        for number, item in read_json(path, "SugarCrepe").items():
            try:
                rows.append(
                    (
                        str(item["filename"]),
                        name,
                        str(item["caption"]),
                        str(item["negative_caption"]),
                    )
                )
            except (KeyError, TypeError) as error:
                raise ValueError(
                    f"{path}: entry {number} has no filename, caption and negative_caption: "
                    f"{type(error).__name__} {error}"
                ) from error
    return pd.DataFrame(rows, columns=["image", "edit", "caption", "edited"])
