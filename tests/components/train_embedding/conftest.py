"""Small scenes, as the stages before leave them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bifocal.datasets import read_dataset
from bifocal.sorters import ExactRankSorter, save_sorter
from bifocal.text.vectorizers import TFIDF
from bifocal.text.vectorizers.base import write_text
from tests.bifocal.datasets.small import write_scenes

Scened = Callable[[int, int], dict[str, Path]]


@pytest.fixture(scope="module")
def scened(tmp_path_factory: pytest.TempPathFactory) -> Scened:
    """``scened(train, val)`` writes dataset, text and an analytic sorter; it returns all folders;
    features is empty."""

    def write(train: int, val: int) -> dict[str, Path]:
        folder = tmp_path_factory.mktemp("artifacts")
        paths = {name: folder / name for name in ("dataset", "features", "text", "sorter")}
        for path in paths.values():
            path.mkdir()
        save_sorter(paths["sorter"], ExactRankSorter(), {})
        write_scenes(paths["dataset"], train, val, 4)
        captions = read_dataset(paths["dataset"]).captions
        vectorizer = TFIDF(min_count=1)
        vectorizer.fit(list(captions["text"]), seed=0)
        write_text(paths["text"], vectorizer, captions["caption_id"], list(captions["text"]))
        return paths

    return write
