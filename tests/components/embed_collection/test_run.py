"""The stage embed_collection with the graphs of the demo: sources, updates, shards, kills, refusals."""

import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from bifocal.datasets import open_image, read_dataset, write_dataset
from bifocal.datasets.corpora import Scenes
from bifocal.search.collection import Collection
from bifocal.search.image_vectors import ImageVectors
from bifocal.serving.embedder import Embedder
from bifocal.serving.heatmaps import HeatmapModel, image_vectors
from bifocal.trained import encode_file
from components.cluster.merge_collection.spec import COMPONENT as MERGE
from components.embed_collection.spec import COMPONENT
from runtime import artifacts
from runtime.parameters import load, validate
from runtime.s3.user_files import download_user_files
from runtime.stage import run_stage

ROOT = Path(__file__).parents[3]
DEFAULTS = load(ROOT / "params.yaml")
GRAPHS = ROOT / "pipelines" / "app" / "demo_model" / "onnx"
SCENES = 11


@pytest.fixture(scope="module", autouse=True)
def untracked() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runtime.stage.stage_run", lambda *_: nullcontext())
        for name in ("log_metrics", "log_datasets"):
            patch.setattr(f"runtime.stage.{name}", lambda *_, **__: None)
        yield


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A dataset of 11 scenes with metadata, the exported model of the demo, and features that nothing reads."""
    folder = tmp_path_factory.mktemp("artifacts")
    partial = artifacts.open_partial(folder / "dataset", {})
    corpus = Scenes(train=5, val=3, test=3, size=64).read(partial / "images")
    years = {image.image_id: {"year": 2000 + number} for number, image in enumerate(corpus.images)}
    corpus = replace(corpus, metadata=years)
    write_dataset(partial, "Scenes", corpus, copy_images=True, max_pixels=10_000, max_rejected_fraction=0.0)
    artifacts.commit(partial, folder / "dataset", {})
    for name in ("features", "onnx"):
        partial = artifacts.open_partial(folder / name, {})
        if name == "onnx":
            shutil.copytree(GRAPHS, partial, dirs_exist_ok=True)
        artifacts.commit(partial, folder / name, {})
    return {name: folder / name for name in COMPONENT.inputs}


@pytest.fixture
def photos(inputs: dict[str, Path], tmp_path: Path) -> Path:
    """A folder with the images of the dataset, in its order, without captions."""
    folder, dataset = tmp_path / "photos", read_dataset(inputs["dataset"])
    folder.mkdir()
    for number, image_id in enumerate(dataset.images["image_id"]):
        shutil.copy(dataset.image_path(image_id), folder / f"{number:02d}.png")
    return folder


def embed(inputs: dict[str, Path], target: Path, shard: str | None = None, **section: Any) -> dict[str, float]:
    values = {"seed": 1, COMPONENT.name: DEFAULTS[COMPONENT.name] | {"items_per_shard": 4, "batch_size": 3} | section}
    local = download_user_files(values, COMPONENT)
    params = validate(local, [COMPONENT])[COMPONENT.name]
    options = {} if shard is None else {"shard": shard}
    return run_stage(COMPONENT, params, inputs, {"collection": target}, values, options).metrics


def rejected(target: Path) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = pq.read_table(target / "rejected.parquet").to_pylist()
    return rows


@pytest.fixture(scope="module")
def whole(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection of the dataset."""
    target = tmp_path_factory.mktemp("whole") / "collection"
    embed(inputs, target)
    return target


def test_the_dataset_is_embedded_as_the_served_model_does(inputs: dict[str, Path], whole: Path) -> None:
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
        np.testing.assert_allclose(regions.boxes, heatmaps.boxes * 64, atol=1e-4)  # the graphs read the whole square
    items = collection.items.to_pandas()
    assert collection.ids == dataset.images["image_id"].tolist()
    assert items["sha256"].tolist() == dataset.images["sha256"].tolist()
    assert items["meta.split"].tolist() == dataset.images["split"].tolist()
    assert collection.items.column("meta.year").to_pylist() == list(range(2000, 2000 + SCENES))
    assert collection.captions(0) == dataset.captions.groupby("image_id")["text"].agg(list)[collection.ids[0]]
    assert open_image(Path(str(collection.image(3)))).size == (64, 64)


def test_metrics_have_counts_and_the_rate_of_the_bare_network(inputs: dict[str, Path], whole: Path) -> None:
    metrics = artifacts.read_manifest(whole)["metrics"]
    assert {name: metrics[name] for name in ("items", "embedded", "kept", "deleted", "rejected")} == {
        "items": SCENES, "embedded": SCENES, "kept": 0, "deleted": 0, "rejected": 0,
    }  # fmt: skip
    assert metrics["network_images_per_second"] > metrics["images_per_second"] > 0


def test_a_folder_without_captions_has_the_same_vectors(
    inputs: dict[str, Path], whole: Path, photos: Path, tmp_path: Path
) -> None:
    (photos / "broken.jpg").write_bytes(b"no image")
    Image.new("RGB", (300, 200)).save(photos / "huge.png")
    metrics = embed(inputs, tmp_path / "collection", source=str(photos), max_pixels=20_000, regions=False)
    assert (metrics["items"], metrics["rejected"]) == (SCENES, 2)
    collection = Collection.open(tmp_path / "collection")
    assert collection.regions(0) is None
    np.testing.assert_array_equal(collection.vectors[:], Collection.open(whole).vectors[:])
    assert [row["image"] for row in rejected(tmp_path / "collection")] == ["broken.jpg", "huge.png"]
    assert "not an image in a supported format" in rejected(tmp_path / "collection")[0]["reason"]
    assert rejected(tmp_path / "collection")[1]["reason"] == "300 x 200 pixels, more than max_pixels 20000"


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_table_names_images_and_keeps_its_other_columns(
    inputs: dict[str, Path], photos: Path, tmp_path: Path, suffix: str
) -> None:
    names = sorted(path.name for path in photos.iterdir())[:3]
    table = pd.DataFrame({"file_name": [*names, names[0], "gone.jpg"], "price": [1, 2, 3, 4, 5], "text": [*"abcde"]})
    file = photos / f"list.{suffix}"
    write = {
        "csv": lambda: table.to_csv(file, index=False),
        "jsonl": lambda: table.to_json(file, orient="records", lines=True),
        "parquet": lambda: table.to_parquet(file),
    }
    write[suffix]()
    embed(inputs, tmp_path / "collection", source=str(file))
    collection = Collection.open(tmp_path / "collection")
    assert collection.ids == names
    assert [collection.captions(row) for row in range(3)] == [["a", "d"], ["b"], ["c"]]
    expected = ["1", "2", "3"] if suffix == "csv" else [1, 2, 3]
    assert collection.items.column("meta.price").to_pylist() == expected
    assert rejected(tmp_path / "collection") == [{"image": "gone.jpg", "reason": "No such file or directory"}]


def test_tar_shards_are_unpacked_and_their_texts_kept(
    inputs: dict[str, Path], whole: Path, photos: Path, tmp_path: Path
) -> None:
    images = sorted(photos.iterdir())
    (tmp_path / "web").mkdir()
    for number, part in enumerate((images[:6], images[6:])):
        with tarfile.open(tmp_path / "web" / f"{number:05d}.tar", "w") as tar:
            for image in part:
                tar.add(image, image.name)
                content = json.dumps({"caption": image.stem, "license": number}).encode()
                info = tarfile.TarInfo(f"{image.stem}.json")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    embed(inputs, tmp_path / "collection", source=str(tmp_path / "web"))
    collection = Collection.open(tmp_path / "collection")
    assert collection.ids == [f"{'00000' if n < 6 else '00001'}/{image.name}" for n, image in enumerate(images)]
    assert collection.captions(7) == [images[7].stem]
    assert collection.items.column("meta.license").to_pylist() == [0] * 6 + [1] * (SCENES - 6)
    np.testing.assert_array_equal(collection.vectors[:], Collection.open(whole).vectors[:])
    assert open_image(Path(str(collection.image(0)))).size == (64, 64)
    assert not list((tmp_path / "collection").rglob("images/**/*.json"))


def test_images_at_an_address_are_embedded(
    s3: None, inputs: dict[str, Path], whole: Path, photos: Path, tmp_path: Path
) -> None:
    client = boto3.client("s3")
    for path in photos.iterdir():
        client.put_object(Bucket="bucket", Key=f"photos/{path.name}", Body=path.read_bytes())
    embed(inputs, tmp_path / "collection", source="s3://bucket/photos")
    collection = Collection.open(tmp_path / "collection")
    np.testing.assert_array_equal(collection.vectors[:], Collection.open(whole).vectors[:])
    assert collection.image(0) == f"s3://bucket/photos/{collection.ids[0]}"


def test_an_update_embeds_new_and_changed_images_alone(inputs: dict[str, Path], photos: Path, tmp_path: Path) -> None:
    target, names = tmp_path / "collection", sorted(path.name for path in photos.iterdir())
    embed(inputs, target, source=str(photos))
    first = Collection.open(target).vectors[:].copy()
    (photos / names[0]).unlink()
    (photos / names[1]).write_bytes((photos / names[2]).read_bytes())
    (photos / "000.png").write_bytes((photos / names[3]).read_bytes())
    metrics = embed(inputs, target, source=str(photos), former=str(target))
    assert [metrics[name] for name in ("items", "embedded", "kept", "deleted")] == [SCENES, 2, SCENES - 2, 1]
    collection = Collection.open(target)
    assert collection.ids == ["000.png", *names[1:], names[0]]
    assert collection.deleted.tolist() == [False] * SCENES + [True]
    expected = np.concatenate([first[[3, 2, *range(2, SCENES)]], np.zeros((1, first.shape[1]))])
    np.testing.assert_allclose(collection.vectors[:].astype(float), expected, atol=1e-3)
    assert collection.regions(SCENES) is None
    (photos / names[0]).write_bytes((photos / names[1]).read_bytes())  # an image returns
    (photos / names[2]).write_bytes(b"damaged")
    metrics = embed(inputs, target, source=str(photos), former=str(target))
    assert [metrics[name] for name in ("embedded", "kept", "deleted", "rejected")] == [1, SCENES - 1, 1, 1]
    embed(inputs, tmp_path / "fresh", source=str(photos))
    updated, fresh = Collection.open(target), Collection.open(tmp_path / "fresh")
    assert updated.ids[: len(fresh)] == fresh.ids
    np.testing.assert_allclose(updated.vectors[: len(fresh)].astype(float), fresh.vectors[:].astype(float), atol=1e-3)


def test_another_model_embeds_all_again(inputs: dict[str, Path], whole: Path, tmp_path: Path) -> None:
    other = tmp_path / "onnx"
    shutil.copytree(inputs["onnx"], other)
    preprocessing = json.loads((other / "preprocessing.json").read_text())
    (other / "preprocessing.json").write_text(json.dumps(preprocessing, indent=1))
    metrics = embed(inputs | {"onnx": other}, tmp_path / "collection", former=str(whole))
    assert (metrics["embedded"], metrics["kept"], metrics["deleted"]) == (SCENES, 0, 0)


@pytest.mark.parametrize("count", [2, 12])
def test_merged_shards_equal_the_unsharded_collection(
    inputs: dict[str, Path], whole: Path, photos: Path, tmp_path: Path, count: int
) -> None:
    removed = sorted(photos.iterdir())[-1]
    content = removed.read_bytes()
    embed(inputs, tmp_path / "former", source=str(photos))
    removed.unlink()
    (photos / "99.png").write_bytes(content)
    changes = {"source": str(photos), "former": str(tmp_path / "former")}
    parts = [tmp_path / f"collection-{number}" for number in range(1, count + 1)]
    for number, part in enumerate(parts, start=1):
        embed(inputs, part, f"{number}/{count}", **changes)
    merged = {f"shard_{number}": part for number, part in enumerate(reversed(parts))}
    run_stage(MERGE, MERGE.params(seed=0), merged, {"collection": tmp_path / "merged"}, DEFAULTS)
    embed(inputs, tmp_path / "once", **changes)
    one, other = Collection.open(tmp_path / "once"), Collection.open(tmp_path / "merged")
    assert one.items.drop_columns(["shard", "row"]).equals(other.items.drop_columns(["shard", "row"]))
    np.testing.assert_allclose(one.vectors[:].astype(float), other.vectors[:].astype(float), atol=1e-3)
    assert other.regions(SCENES - 1) is not None
    linked = [path for part in parts for path in sorted((part / "vectors").iterdir())]
    assert linked[-1].samefile(max((tmp_path / "merged" / "vectors").iterdir()))


def test_a_killed_run_resumes_after_its_last_complete_shard(
    inputs: dict[str, Path], whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    encode = ImageVectors.encode_images

    def die_late(self: ImageVectors, pixels: list[Any]) -> Any:
        calls.append(len(pixels))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(self, pixels)

    monkeypatch.setattr(ImageVectors, "encode_images", die_late)
    with pytest.raises(KeyboardInterrupt):
        embed(inputs, tmp_path / "collection", batch_size=4)
    metrics = embed(inputs, tmp_path / "collection", batch_size=4)
    assert calls == [4, 4, 3, 3]
    assert metrics["embedded"] == 3
    files = sorted(path.relative_to(whole) for path in whole.rglob("*.npy"))
    embed(inputs, tmp_path / "uninterrupted", batch_size=4)
    for name in files:
        assert (tmp_path / "collection" / name).read_bytes() == (tmp_path / "uninterrupted" / name).read_bytes()


def test_a_late_interaction_model_is_refused(inputs: dict[str, Path], tmp_path: Path) -> None:
    other = tmp_path / "onnx"
    shutil.copytree(inputs["onnx"], other)
    shutil.copy(other / "text_encoder.onnx", other / "scores.onnx")
    with pytest.raises(ValueError, match=r"model is of late interaction: .* Set pipeline: late_interaction"):
        embed(inputs | {"onnx": other}, tmp_path / "collection")


def test_sources_without_images_are_refused(inputs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="has no images: expected a folder of images, of tar shards"):
        embed(inputs, tmp_path / "collection", source=str(tmp_path / "empty"))
    with pytest.raises(ValueError, match="is no collection of images"):
        embed(inputs, tmp_path / "collection", source=str(tmp_path / "nothing"))
    pq.write_table(pa.table({"city": ["Oslo"]}), tmp_path / "list.parquet")
    with pytest.raises(ValueError, match="no column is recognized as the image's"):
        embed(inputs, tmp_path / "collection", source=str(tmp_path / "list.parquet"))
