"""Stored features of the backbone: another model with this backbone reads no image, and rows of
features stay those of their items."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from bifocal.datasets.corpora import Scenes
from bifocal.durable import change
from bifocal.search.collection.collection import Collection, merge_collections
from bifocal.search.collection.embedding import CollectionEmbedder
from bifocal.search.collection.image_vectors import ImageVectors
from bifocal.search.collection.presence import with_unknown
from bifocal.search.collection.sources import files_source
from bifocal.search.deletion import delete_from_collection
from components.embed_collection.listing import read_source, write_source
from tests.components.embed_collection.conftest import GRAPHS

IMAGES = 6
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3), st.integers(0, IMAGES - 1)),
        st.tuples(st.just("remove"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("delete"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("embed"), st.integers(0, 1), st.integers(1, 2)),
    ),
    max_size=8,
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The demo's model, and one with its backbone and another head."""
    other = tmp_path_factory.mktemp("other") / "onnx"
    shutil.copytree(GRAPHS, other)
    file = other / "image_encoder.onnx"
    graph, random = onnx.load(file), np.random.default_rng(0)
    for weight in graph.graph.initializer:
        values = numpy_helper.to_array(weight)
        if values.ndim > 1 and values.dtype == np.float32:
            noise = random.normal(0, values.std(), values.shape).astype(np.float32)
            weight.CopyFrom(numpy_helper.from_array(values + noise, weight.name))
    onnx.save(graph, file)
    return [GRAPHS, other]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Files of drawn scenes."""
    folder = tmp_path_factory.mktemp("scenes")
    corpus = Scenes(train=IMAGES, val=0, test=0, size=64).read(folder)
    return [(folder / str(image.path)).read_bytes() for image in corpus.images]


@pytest.fixture(scope="module")
def features(pictures: list[bytes]) -> list[Any]:
    """The features of each picture by the backbone."""
    vectors = ImageVectors(GRAPHS)
    return vectors.read_pixels([vectors.decode(file, None).pixels for file in pictures])


def write(
    onnx: Path, photos: Path, target: Path, previous: Path | None = None, shards: int = 1
) -> dict[str, float]:
    """Write the collection of a folder, by several machines; return the sums of their counts."""
    former, counts = None if previous is None else Collection.open(previous), dict[str, float]()
    parts = [target] if shards == 1 else [target / f"part-{n}" for n in range(shards)]
    whole = with_unknown(files_source(photos, target), former, prune=True)
    for number, part in enumerate(parts):
        source = whole
        if shards > 1:
            write_source(whole, target, shards)
            source = read_source(target, part, f"{number + 1}/{shards}", photos, photos)
        embedder = CollectionEmbedder(onnx, "demo", source, former, items_per_shard=2, batch_size=2)
        written = embedder.write(part)
        counts = {name: counts.get(name, 0.0) + value for name, value in written.items()}
    if shards > 1:
        merge_collections(parts, target)
    return counts


def live_rows(collection: Collection) -> Iterator[tuple[int, str]]:
    for row, item_id in enumerate(collection.ids):
        if not collection.deleted[row]:
            yield row, item_id


def test_another_head_reads_the_stored_features_and_no_image(
    models: list[Path], pictures: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number, picture in enumerate(pictures):
        (photos / f"{number}.png").write_bytes(picture)
    first, anew, computed = (tmp_path / name for name in ("first", "anew", "computed"))
    write(models[0], photos, first)
    write(models[1], photos, anew)
    with monkeypatch.context() as patch:
        patch.setattr(ImageVectors, "decode", None)
        counts = write(models[1], photos, computed, previous=first)
    assert (counts["from_features"], counts["embedded"], counts["kept"]) == (IMAGES, 0, 0)
    before, expected, found = map(Collection.open, (first, anew, computed))
    np.testing.assert_allclose(found.vectors[:], expected.vectors[:], atol=1e-5, rtol=0)
    assert np.abs(np.float32(found.vectors[:]) - np.float32(before.vectors[:])).max() > 0.01
    for row, _ in live_rows(found):
        theirs, ours = expected.regions(row), found.regions(row)
        assert theirs is not None
        assert ours is not None
        np.testing.assert_allclose(ours.vectors, theirs.vectors, atol=1e-5, rtol=0)
        np.testing.assert_array_equal(ours.boxes, theirs.boxes)


@settings(max_examples=12, deadline=None)
@given(steps=STEPS)
def test_features_stay_with_their_items(
    models: list[Path], pictures: list[bytes], features: list[Any], steps: list[tuple[Any, ...]]
) -> None:
    with TemporaryDirectory() as folder:
        photos, previous, present = Path(folder) / "photos", None, {"0.png": 0, "keep.png": 1}
        photos.mkdir()
        for name, number in present.items():
            (photos / name).write_bytes(pictures[number])
        for turn, (step, first, second) in enumerate([("embed", 0, 1), *steps, ("embed", 1, 1)]):
            name = f"{first}.png"
            if step == "put":
                present[name] = second
                (photos / name).write_bytes(pictures[second])
            elif step == "remove":
                present.pop(name, None)
                (photos / name).unlink(missing_ok=True)
            elif step == "delete":
                assert previous is not None
                known = {item_id for _, item_id in live_rows(Collection.open(previous))}
                if Path(name).stem in known or name in known:
                    with change(Path(folder)) as changed:
                        gone = name if name in known else Path(name).stem
                        delete_from_collection(changed, previous, [gone])
                    check(previous, None, features, pictures)
            else:
                target = Path(folder) / f"collection-{turn}"
                target.mkdir()
                write(models[first], photos, target, previous, shards=second)
                previous = target
                check(previous, present, features, pictures)


def check(
    directory: Path, present: dict[str, int] | None, features: list[Any], pictures: list[bytes]
) -> None:
    """Compare the features of each item with those of its picture; deleted ones leave no byte."""
    collection = Collection.open(directory)
    rows = list(live_rows(collection))
    assert collection.description.backbone is not None
    if present is not None:
        assert len(rows) == len(present)
        for row, _ in rows:
            name = str(collection.items.column("image")[row].as_py())
            expected = features[present[name]]
            (stored,) = collection.features([row])
            np.testing.assert_allclose(stored, expected, atol=2e-3, rtol=2e-3)
    files = [np.load(file) for file in sorted((directory / "features").glob("*.npy"))]
    assert sum(int(values.any(axis=1).sum()) for values in files) == len(rows)
