"""Data sets of labels alone."""

from pathlib import Path

import pandas as pd

from bifocal.datasets import Dataset


def label(
    image_id: str, task: str, name: str, value: float, group: str | None = None
) -> dict[str, object]:
    """Return a row of the table of labels; the group of an image is by default its own."""
    return {
        "image_id": image_id,
        "group": group or image_id,
        "task": task,
        "label": name,
        "value": float(value),
    }


def labeled_dataset(
    folder: Path, splits: dict[str, str], labels: list[dict[str, object]]
) -> Dataset:
    """Return a data set of images without captions and phrases."""
    images = [{"image_id": name, "split": split} for name, split in splits.items()]
    captions = pd.DataFrame({"caption_id": [], "image_id": [], "text": []})
    phrases = pd.DataFrame({"image_id": []})
    return Dataset(pd.DataFrame(images), captions, phrases, folder, pd.DataFrame(labels))
