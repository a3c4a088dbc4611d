"""Search for regions against loops, and its boxes."""

from pathlib import Path

import numpy as np
import pytest

from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import Description, ModelIdentity
from bifocal.search.collection.writer import CollectionWriter, Item
from bifocal.search.regions import search_regions


def test_region_search_returns_the_best_region_of_each_item(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    writer = CollectionWriter(
        tmp_path, Description(ModelIdentity("m", None, "00"), ".", 2, 3), items_per_shard=3
    )
    scores, phrase = {}, random.normal(size=3).astype(np.float32)
    for number, count in enumerate([4, 1, 5, 2, 3]):
        vectors = random.normal(size=(count, 3)).astype(np.float16)
        boxes = np.arange(4.0 * count).reshape(count, 4)
        writer.add(Item(f"i{number}", None, "", 9, 9), np.array([1.0, 0.0]), vectors, boxes)
        of_regions = [float(np.dot(vector.astype(np.float32), phrase)) for vector in vectors]
        best = max(range(count), key=of_regions.__getitem__)
        scores[f"i{number}"] = of_regions[best], tuple((boxes[best] / 9).tolist())
    writer.finish(deleted=[Item("gone", None, "", 9, 9)])
    for k in (1, 3, 9):
        hits = search_regions(Collection.open(tmp_path), lambda vectors: vectors @ phrase, k)
        expected = sorted(scores, key=lambda name: -scores[name][0])[:k]
        assert [f"i{hit.row}" for hit in hits] == expected
        assert [hit.box for hit in hits] == [scores[name][1] for name in expected]
        assert [hit.score for hit in hits] == pytest.approx(
            [scores[name][0] for name in expected], rel=1e-5
        )


def test_region_search_needs_regions(tmp_path: Path) -> None:
    CollectionWriter(tmp_path, Description(ModelIdentity("m", None, "00"), ".", 2, None)).finish()
    with pytest.raises(ValueError, match="the collection has no regions"):
        search_regions(Collection.open(tmp_path), lambda vectors: vectors[:, 0], 1)
