"""Updates of a collection: which files are read again, and which shards are taken over."""

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from bifocal.datasets import read_dataset
from bifocal.durable import change
from bifocal.search.collection import format
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.image_vectors import ImageVectors
from bifocal.search.deletion import delete_from_collection
from components.cluster.steps import MERGE_COLLECTION as MERGE
from runtime.artifacts import artifact_hash
from runtime.stage import Job, run_stage
from tests.components.embed_collection.conftest import DEFAULTS, SCENES, embed

SHARD = 4


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as old at once."""
    monkeypatch.setattr(format, "SETTLED_NS", 0)


def write_as_before(file: Path, content: bytes) -> None:
    """Write a file and restore its time of modification, as ``rsync --times`` does."""
    before = file.stat()
    file.write_bytes(content.ljust(before.st_size, b"\0")[: before.st_size])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.mark.usefixtures("settled")
def test_a_file_is_read_again_only_if_its_state_changed(
    inputs: dict[str, Path], photos: Path, tmp_path: Path
) -> None:
    target, names = tmp_path / "collection", sorted(path.name for path in photos.iterdir())
    changes = {"source": str(photos), "previous": str(target)}
    assert embed(inputs, target, source=str(photos))["read"] == SCENES
    metrics = embed(inputs, target, **changes)
    assert (metrics["read"], metrics["kept"], metrics["embedded"]) == (0, SCENES, 0)
    (photos / names[0]).touch()
    other = next(
        name
        for name in names[1:]
        if (photos / name).stat().st_size <= (photos / names[5]).stat().st_size
    )
    write_as_before(photos / names[5], (photos / other).read_bytes())
    metrics = embed(inputs, target, **changes)
    assert (metrics["read"], metrics["kept"], metrics["embedded"]) == (2, SCENES - 1, 1)
    collection = Collection.open(tmp_path / "collection")
    rows = [collection.ids.index(name) for name in (names[5], other)]
    np.testing.assert_allclose(*collection.vectors[rows].astype(float), atol=1e-3)
    assert embed(inputs, target, **changes)["read"] == 0


def test_a_later_run_with_the_same_images_writes_the_same_files(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    # The paths of two runs on Kubeflow: the second has the dataset of the first from the cache.
    first, later = (
        tmp_path / run / "embed-collection" / "collection" for run in ("run-1", "run-2")
    )
    dataset = shutil.copytree(inputs["dataset"], tmp_path / "run-1" / "prepare-dataset" / "dataset")
    embed(inputs | {"dataset": dataset}, first)
    metrics = embed(
        {"dataset": dataset, "onnx": inputs["onnx"], "previous": first}, later
    )  # as in the flow refresh
    assert (metrics["embedded"], metrics["kept"]) == (0, SCENES)
    assert artifact_hash(later) == artifact_hash(first)
    pulled = Collection.open(shutil.copytree(later, tmp_path / "artifacts" / "collection"))
    dataset = shutil.copytree(dataset, tmp_path / "artifacts" / "dataset")
    assert pulled.image(0) == read_dataset(dataset).image_path(pulled.ids[0])


def test_a_file_of_the_last_seconds_is_read_again(
    inputs: dict[str, Path], photos: Path, tmp_path: Path
) -> None:
    for file in photos.iterdir():
        os.utime(file, (0, 0))  # the time of modification is old, the time of the change is not
    embed(inputs, tmp_path / "previous", source=str(photos))
    assert not (tmp_path / "previous" / format.STATES).exists()
    metrics = embed(
        inputs, tmp_path / "collection", source=str(photos), previous=str(tmp_path / "previous")
    )
    assert (metrics["read"], metrics["kept"]) == (SCENES, SCENES)


@pytest.mark.usefixtures("settled")
def test_whole_shards_are_linked_and_others_written_again(
    inputs: dict[str, Path], photos: Path, tmp_path: Path
) -> None:
    previous, target = tmp_path / "previous", tmp_path / "collection"
    embed(inputs, previous, source=str(photos))
    names = Collection.open(previous).ids
    removed = Collection.open(previous).vectors[1].copy()
    (photos / names[1]).unlink()
    (photos / "00a.png").write_bytes((photos / names[2]).read_bytes())
    metrics = embed(inputs, target, source=str(photos), previous=str(previous))
    assert (metrics["read"], metrics["kept"], metrics["deleted"]) == (1, SCENES - 1, 1)
    one, other = Collection.open(previous), Collection.open(target)
    assert other.ids == [names[0], "00a.png", *names[2:], names[1]]
    assert other.description.shards == (
        SHARD,
        3,
        SHARD,
    )  # two linked shards, of which the second is small enough
    for folder, suffix in (
        ("vectors", ""),
        ("regions", ""),
        ("regions", ".offsets"),
        ("regions", ".boxes"),
    ):
        assert (target / folder / f"00000{suffix}.npy").samefile(
            previous / folder / f"00001{suffix}.npy"
        )
    assert not any(
        (np.load(file) == removed).all(axis=1).any() for file in (target / "vectors").iterdir()
    )
    for name in names[2:]:
        rows = one.ids.index(name), other.ids.index(name)
        np.testing.assert_array_equal(one.vectors[rows[0]], other.vectors[rows[1]])
        for expected, found in zip(
            one.regions(rows[0]) or (), other.regions(rows[1]) or (), strict=True
        ):
            np.testing.assert_array_equal(expected, found)


@pytest.mark.usefixtures("settled")
def test_a_deletion_leaves_the_linked_shards_of_other_collections(
    inputs: dict[str, Path], photos: Path, tmp_path: Path
) -> None:
    previous, target = tmp_path / "previous", tmp_path / "collection"
    embed(inputs, previous, source=str(photos))
    embed(inputs, target, source=str(photos), previous=str(previous))
    before = Collection.open(previous).vectors[:].copy()
    name = Collection.open(target).ids[0]
    with change(target) as changed:
        delete_from_collection(changed, target, [name])
    assert name not in pq.read_table(target / format.STATES)["item_id"].to_pylist()
    np.testing.assert_array_equal(Collection.open(previous).vectors[:], before)
    assert (
        embed(inputs, target, source=str(photos), previous=str(target))["embedded"] == 1
    )  # its file is still there


@pytest.mark.usefixtures("settled")
def test_merged_shards_know_the_states_of_all_files(
    inputs: dict[str, Path], photos: Path, tmp_path: Path
) -> None:
    parts = [tmp_path / "collection-1", tmp_path / "collection-2"]
    for number, part in enumerate(parts, start=1):
        embed(inputs, part, f"{number}/2", source=str(photos))
    merged = {f"shard_{number}": part for number, part in enumerate(parts)}
    run_stage(
        Job(MERGE, MERGE.params(seed=0), merged, {"collection": tmp_path / "merged"}, DEFAULTS)
    )
    metrics = embed(
        inputs, tmp_path / "updated", source=str(photos), previous=str(tmp_path / "merged")
    )
    assert (metrics["read"], metrics["kept"]) == (0, SCENES)


@pytest.mark.parametrize("changed", [0, 10])
def test_a_resumed_run_embeds_images_that_changed_since(
    inputs: dict[str, Path],
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: int,
) -> None:
    calls: list[int] = []
    encode = ImageVectors.read_pixels

    def die_late(self: ImageVectors, pixels: list[np.ndarray]) -> object:
        calls.append(len(pixels))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(self, pixels)

    monkeypatch.setattr(ImageVectors, "read_pixels", die_late)
    target, names = tmp_path / "collection", sorted(path.name for path in photos.iterdir())
    with pytest.raises(KeyboardInterrupt):
        embed(inputs, target, source=str(photos), batch_size=SHARD)
    (photos / names[changed]).write_bytes((photos / names[4]).read_bytes())
    metrics = embed(inputs, target, source=str(photos), batch_size=SHARD)
    assert metrics["embedded"] == (
        SCENES if changed == 0 else 3
    )  # complete shards are kept if they are still true
    vectors = Collection.open(target).vectors
    np.testing.assert_allclose(vectors[changed].astype(float), vectors[4].astype(float), atol=1e-3)


def test_images_that_are_away_keep_their_vectors_unless_another_model_needs_them(
    inputs: dict[str, Path], photos: Path, tmp_path: Path
) -> None:
    target, names = tmp_path / "collection", sorted(path.name for path in photos.iterdir())
    changes = {"source": str(photos), "previous": str(target)}
    embed(inputs, target, source=str(photos), regions=False, feature_bytes=0)
    before = Collection.open(target)
    ids, vectors = before.ids, before.vectors[:]
    for name in names[1:]:
        (photos / name).unlink()
    metrics = embed(inputs, target, regions=False, **changes)
    after = Collection.open(target)
    assert (metrics["items"], metrics["embedded"], metrics["deleted"]) == (SCENES, 0, 0)
    rows = [after.ids.index(item_id) for item_id in ids]
    np.testing.assert_array_equal(after.vectors[rows], vectors)
    with pytest.raises(ValueError, match=r"are not in .* now, and another model"):
        embed(inputs, target, regions=True, **changes)
    metrics = embed(inputs, target, regions=False, prune=True, **changes)
    assert (metrics["items"], metrics["deleted"]) == (1, SCENES - 1)
