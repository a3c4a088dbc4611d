"""The stage embed_collection with the graphs of the demo: updates, shards, refusals."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bifocal.datasets import read_dataset
from bifocal.onnx.encoders import Embedder
from bifocal.onnx.heatmaps import HeatmapModel, image_vectors
from bifocal.onnx.images import open_image
from bifocal.search.collection.collection import Collection
from bifocal.search.trained_model import encode_file
from components.cluster.steps import MERGE_COLLECTION as MERGE
from components.embed_collection.spec import COMPONENT
from runtime import artifacts
from runtime.job import Workspace, stage_job
from runtime.shards import LISTING
from runtime.stage import Job, run_stage
from tests.components.embed_collection.conftest import DEFAULTS, SCENES, embed


def test_the_dataset_is_embedded_as_the_served_model_does(
    inputs: dict[str, Path], whole: Path
) -> None:
    collection, dataset = Collection.open(whole), read_dataset(inputs["dataset"])
    embedder = Embedder(inputs["onnx"])
    files = [encode_file(dataset.image_path(image_id)) for image_id in collection.ids]
    np.testing.assert_allclose(collection.vectors[:], embedder.embed_images(files), atol=1e-3)
    heatmaps = HeatmapModel(inputs["onnx"], embedder)
    for row in (0, SCENES - 1):
        regions = collection.regions(row)
        assert regions is not None
        (expected,) = image_vectors(embedder, heatmaps.vectors, embedder.read_images([files[row]]))
        np.testing.assert_allclose(regions.vectors, expected, atol=2e-2, rtol=2e-3)
        np.testing.assert_allclose(
            regions.boxes, heatmaps.boxes * 64, atol=1e-4
        )  # the graphs read the whole square
    items = collection.items.to_pandas()
    assert collection.ids == dataset.images["image_id"].tolist()
    assert items["sha256"].tolist() == dataset.images["sha256"].tolist()
    assert items["meta.split"].tolist() == dataset.images["split"].tolist()
    assert collection.items.column("meta.year").to_pylist() == list(range(2000, 2000 + SCENES))
    assert (
        collection.captions(0)
        == dataset.captions.groupby("image_id")["text"].agg(list)[collection.ids[0]]
    )
    assert open_image(Path(str(collection.image(3)))).size == (64, 64)


def test_metrics_have_counts_and_the_rate_of_the_bare_network(
    inputs: dict[str, Path], whole: Path, tmp_path: Path
) -> None:
    metrics = artifacts.read_manifest(whole)["metrics"]
    assert {
        name: metrics[name] for name in ("items", "embedded", "kept", "deleted", "rejected")
    } == {
        "items": SCENES,
        "embedded": SCENES,
        "kept": 0,
        "deleted": 0,
        "rejected": 0,
    }
    assert not any(name.endswith("_per_second") for name in metrics), (
        "the same images give the same manifest"
    )
    metrics = embed(inputs, tmp_path / "again")
    assert metrics["network_images_per_second"] > metrics["images_per_second"] > 0
    assert artifacts.artifact_hash(tmp_path / "again") == artifacts.artifact_hash(whole)
    assert (tmp_path / "again/manifest.json").read_bytes() == (whole / "manifest.json").read_bytes()


def test_an_update_embeds_new_and_changed_images_alone(
    inputs: dict[str, Path], photos: Path, tmp_path: Path
) -> None:
    target, names = tmp_path / "collection", sorted(path.name for path in photos.iterdir())
    embed(inputs, target, source=str(photos))
    first = Collection.open(target).vectors[:].copy()
    (photos / names[0]).unlink()
    (photos / names[1]).write_bytes((photos / names[2]).read_bytes())
    (photos / "000.png").write_bytes((photos / names[3]).read_bytes())
    metrics = embed(inputs, target, source=str(photos), previous=str(target))
    assert [metrics[name] for name in ("items", "embedded", "kept", "deleted")] == [
        SCENES,
        2,
        SCENES - 2,
        1,
    ]
    collection = Collection.open(target)
    assert collection.ids == ["000.png", *names[1:], names[0]]
    assert collection.deleted.tolist() == [False] * SCENES + [True]
    expected = np.concatenate([first[[3, 2, *range(2, SCENES)]], np.zeros((1, first.shape[1]))])
    np.testing.assert_allclose(collection.vectors[:].astype(float), expected, atol=1e-3)
    assert collection.regions(SCENES) is None
    (photos / names[0]).write_bytes((photos / names[1]).read_bytes())  # an image returns
    (photos / names[2]).write_bytes(b"damaged")
    metrics = embed(inputs, target, source=str(photos), previous=str(target))
    assert [metrics[name] for name in ("embedded", "kept", "deleted", "rejected")] == [
        1,
        SCENES - 1,
        1,
        1,
    ]
    embed(inputs, tmp_path / "fresh", source=str(photos))
    updated, fresh = Collection.open(target), Collection.open(tmp_path / "fresh")
    assert updated.ids[: len(fresh)] == fresh.ids
    np.testing.assert_allclose(
        updated.vectors[: len(fresh)].astype(float), fresh.vectors[:].astype(float), atol=1e-3
    )


@pytest.mark.parametrize("changes", [{}, {"interpolation": "nearest"}])
def test_another_model_embeds_all_again_unless_its_features_are_stored(
    inputs: dict[str, Path], whole: Path, tmp_path: Path, changes: dict[str, str]
) -> None:
    other = tmp_path / "onnx"
    partial = artifacts.open_partial(other, {})
    shutil.copytree(
        inputs["onnx"],
        partial,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns(artifacts.MANIFEST),
    )
    preprocessing = json.loads((partial / "preprocessing.json").read_text()) | changes
    (partial / "preprocessing.json").write_text(json.dumps(preprocessing, indent=1))
    artifacts.commit(partial, other, {})
    metrics = embed(inputs | {"onnx": other}, tmp_path / "collection", previous=str(whole))
    embedded = SCENES if changes else 0  # other preprocessing, other features
    assert (metrics["embedded"], metrics["from_features"]) == (embedded, SCENES - embedded)
    assert (metrics["kept"], metrics["deleted"]) == (0, 0)


@pytest.mark.parametrize("count", [2, 12])
def test_merged_shards_equal_the_unsharded_collection(
    inputs: dict[str, Path], whole: Path, photos: Path, tmp_path: Path, count: int
) -> None:
    removed = sorted(photos.iterdir())[-1]
    content = removed.read_bytes()
    embed(inputs, tmp_path / "previous", source=str(photos))
    removed.unlink()
    (photos / "99.png").write_bytes(content)
    changes = {"source": str(photos), "previous": str(tmp_path / "previous")}
    parts = [tmp_path / f"collection-{number}" for number in range(1, count + 1)]
    for number, part in enumerate(parts, start=1):
        embed(inputs, part, f"{number}/{count}", **changes)
    merged = {f"shard_{number}": part for number, part in enumerate(reversed(parts))}
    run_stage(
        Job(MERGE, MERGE.params(seed=0), merged, {"collection": tmp_path / "merged"}, DEFAULTS)
    )
    embed(inputs, tmp_path / "once", **changes)
    one, other = Collection.open(tmp_path / "once"), Collection.open(tmp_path / "merged")
    assert one.items.drop_columns(["shard", "row"]).equals(
        other.items.drop_columns(["shard", "row"])
    )
    np.testing.assert_allclose(
        one.vectors[:].astype(float), other.vectors[:].astype(float), atol=1e-3
    )
    assert other.regions(SCENES - 1) is not None
    linked = [path for part in parts for path in sorted((part / "vectors").iterdir())]
    assert linked[-1].samefile(max((tmp_path / "merged" / "vectors").iterdir()))


@pytest.mark.parametrize(("shard", "listing"), [("0/2", None), ("2/2", "collection-0-of-2")])
def test_a_shard_reads_the_listing_of_shard_0(
    tmp_path: Path, shard: str, listing: str | None
) -> None:
    job = stage_job(COMPONENT, DEFAULTS, Workspace(str(tmp_path)), shard)
    assert job.inputs.get(LISTING) == (tmp_path / listing if listing else None)


def test_a_late_interaction_model_is_refused(inputs: dict[str, Path], tmp_path: Path) -> None:
    other = tmp_path / "onnx"
    shutil.copytree(inputs["onnx"], other)
    shutil.copy(other / "text_encoder.onnx", other / "scores.onnx")
    with pytest.raises(
        ValueError, match=r"model is of late interaction: .* Set pipeline: late_interaction"
    ):
        embed(inputs | {"onnx": other}, tmp_path / "collection")
