"""Merged shards equal an unsharded extraction, without copies; shards that do not belong together
are errors."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from bifocal.features import FeatureStore
from components.__main__ import main
from components.catalog import configurable_components
from components.cluster.steps import MERGE
from components.extract_features.spec import COMPONENT as EXTRACT
from runtime import artifacts, shards
from runtime.job import Workspace, stage_job
from runtime.parameters import load, validate
from runtime.stage import Job, run_stage
from tests.bifocal.datasets.small import write_scenes

ROOT = Path(__file__).parents[3]
DEFAULTS = load(ROOT / "params.yaml")


@given(count=st.integers(1, 40), items=st.integers(0, 100))
def test_shards_partition_the_items_in_order_and_differ_in_size_by_at_most_one(
    count: int, items: int
) -> None:
    parts = [
        shards.items_of_shard(range(items), f"{number}/{count}") for number in range(1, count + 1)
    ]
    assert [item for part in parts for item in part] == list(range(items))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("shard", ["0/4", "5/4", "1", "a/b", "1/0", "-1/2", ""])
def test_malformed_shards_are_errors(shard: str) -> None:
    with pytest.raises(ValueError, match="expected i/n with i from 1 to n"):
        shards.parse_shard(shard)


@pytest.mark.parametrize(
    ("stage", "shard", "first"),
    [
        ("extract_features", "0/3", 1),
        ("extract_features", "4/3", 1),
        ("embed_collection", "4/3", 0),
        ("embed_collection", "-1/3", 0),
    ],
)
def test_only_a_stage_that_lists_has_a_shard_0(
    stage: str, shard: str, first: int, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=f"expected i/n with i from {first} to n"):
        stage_job(configurable_components()[stage], DEFAULTS, Workspace(str(tmp_path)), shard)


@pytest.fixture(scope="module", autouse=True)
def untracked() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runtime.stage.stage_run", lambda *_: nullcontext())
        patch.setattr("runtime.stage.log_metrics", lambda *_, **__: None)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete dataset artifact of 17 images, an array for each, and the unsharded extraction at
    ``whole``."""
    folder = tmp_path_factory.mktemp("artifacts")
    partial = artifacts.open_partial(folder / "dataset", {})
    corpus = write_scenes(partial, 9, 4, 4)
    artifacts.commit(partial, folder / "dataset", {})
    (folder / "arrays").mkdir()
    random = np.random.default_rng(0)
    for entry in corpus.images:
        np.save(
            folder / "arrays" / f"{entry.image_id}.npy", random.standard_normal((3, 5), np.float32)
        )
    extract(folder, folder / "whole")
    return folder


def section(folder: Path, **changes: Any) -> dict[str, Any]:
    extractor = {"name": "ImageArrays", "path": str(folder / "arrays"), "regions": 3}
    return {
        "extractor": extractor,
        "weights": None,
        "batch_size": None,
        "images_per_file": 4,
        **changes,
    }


def extract(
    folder: Path, target: Path, shard: str | None = None, **changes: Any
) -> dict[str, float]:
    values = {"seed": 1, "extract_features": section(folder, **changes)}
    params = validate(values, [EXTRACT])["extract_features"]
    options = {} if shard is None else {"shard": shard}
    return run_stage(
        Job(EXTRACT, params, {"dataset": folder / "dataset"}, {"features": target}, values, options)
    ).metrics


def merge_shards(target: Path, *parts: Path) -> dict[str, float]:
    params = MERGE.params(seed=0)
    inputs = {f"shard_{number}": part for number, part in enumerate(parts)}
    return run_stage(Job(MERGE, params, inputs, {"features": target}, DEFAULTS)).metrics


@pytest.mark.parametrize("count", [1, 3, 20])
def test_merged_shards_equal_the_unsharded_store_and_share_its_files(
    folder: Path, tmp_path: Path, count: int
) -> None:
    parts = [tmp_path / f"part{number}" for number in range(1, count + 1)]
    for number, part in enumerate(parts, start=1):
        extract(folder, part, f"{number}/{count}")
    metrics = merge_shards(tmp_path / "merged", *reversed(parts))
    whole, merged = FeatureStore(folder / "whole"), FeatureStore(tmp_path / "merged")
    assert metrics == {"images": 17, "regions": 3, "dim": 5, "shards": count}
    assert merged.image_ids == whole.image_ids
    assert merged.metadata == whole.metadata
    assert merged.gather(range(17)).features.equal(whole.gather(range(17)).features)
    files = artifacts.read_manifest(tmp_path / "merged")["files"]
    for part in parts:
        for name in artifacts.read_manifest(part)["files"]:
            assert (part / name).samefile(tmp_path / "merged" / name)
            assert name in files


def test_missing_duplicate_and_incompatible_shards_are_errors(folder: Path, tmp_path: Path) -> None:
    one, two, other = (tmp_path / name for name in ("one", "two", "other"))
    extract(folder, one, "1/2")
    extract(folder, two, "2/2")
    extract(folder, other, "2/2", images_per_file=5)
    for parts in ((one,), (one, one), (one, two, two)):
        with pytest.raises(
            ValueError, match=r"expected each of the shards 1/2, 2/2 once, got 1/2 in"
        ):
            merge_shards(tmp_path / "merged", *parts)
    with pytest.raises(ValueError, match=r"other and .*one differ in their parameters"):
        merge_shards(tmp_path / "merged", one, other)
    assert not (tmp_path / "merged").exists()
    merge_shards(tmp_path / "merged", one, two)
    assert len(FeatureStore(tmp_path / "merged")) == 17


def test_training_in_a_shard_is_an_error(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"every shard would learn a network of its own.*weights\.safetensors"
    ):
        extract(folder, tmp_path / "part", "1/2", **DEFAULTS["extract_features"])


def test_command_line_extracts_shards_and_merges_them(folder: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({"extract_features": section(folder)}))
    home = tmp_path / "artifacts"
    home.mkdir()
    (home / "dataset").symlink_to(folder / "dataset")

    def call(*options: str) -> str:
        command = ["extract_features", "--recipe", str(recipe), *options, "--artifacts", str(home)]
        command += ["--params", str(ROOT / "params.yaml")]
        return CliRunner().invoke(main, command, catch_exceptions=False).stdout

    assert "features-1-of-2" in call("--shard", "1/2")
    call("--shard", "2/2")
    assert "images: 17" in call("--merge", "2")
    assert json.loads((home / "features" / "manifest.json").read_text())["component"] == "merge"
    assert FeatureStore(home / "features").image_ids == FeatureStore(folder / "whole").image_ids
    for wrong in (("--merge", "0"), ("--merge", "2", "--shard", "1/2")):
        assert CliRunner().invoke(main, ["extract_features", *wrong]).exit_code == 2
