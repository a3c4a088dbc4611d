"""A dataset, the graphs of the demo and a folder of photographs, for the stage embed_collection."""

import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bifocal.datasets import read_dataset
from bifocal.datasets.corpora import Scenes
from components.embed_collection.spec import COMPONENT
from runtime import artifacts
from runtime.parameters import load, validate
from runtime.s3.remote_files import download_user_files
from runtime.shards import LISTING, parse_shard
from runtime.stage import Job, run_stage
from tests.bifocal.datasets.small import write_copies

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
    """A dataset of 11 scenes with metadata, the exported model of the demo, and features that
    nothing reads."""
    folder = tmp_path_factory.mktemp("artifacts")
    partial = artifacts.open_partial(folder / "dataset", {})
    corpus = Scenes(train=5, val=3, test=3, size=64).read(partial / "images")
    years = {image.image_id: {"year": 2000 + number} for number, image in enumerate(corpus.images)}
    corpus = replace(corpus, metadata=years)
    write_copies(partial, corpus)
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


def embed(
    inputs: dict[str, Path], target: Path, shard: str | None = None, **section: Any
) -> dict[str, float]:
    small = {"items_per_shard": 4, "batch_size": 3, "max_rejected_fraction": 1.0}
    values = {"seed": 1, COMPONENT.name: DEFAULTS[COMPONENT.name] | small | section}
    local = download_user_files(values, COMPONENT)
    params = validate(local, [COMPONENT])[COMPONENT.name]
    options = {} if shard is None else {"shard": shard}
    number, count = parse_shard(shard or "0/1", 0)
    if number:
        listing = target.with_name(f"listing-of-{count}")
        if not listing.exists():
            embed(inputs, listing, f"0/{count}", **section)
        inputs = {**inputs, LISTING: listing}
    return run_stage(
        Job(COMPONENT, params, inputs, {"collection": target}, values, options)
    ).metrics


def rejected(target: Path) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = pq.read_table(target / "rejected.parquet").to_pylist()
    return rows


@pytest.fixture(scope="module")
def whole(inputs: dict[str, Path]) -> Path:
    """The collection of the dataset, beside it."""
    target = inputs["dataset"].with_name("collection")
    embed(inputs, target)
    return target
