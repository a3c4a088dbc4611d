"""``python -m pipelines release`` and ``bifocal serve --model``: a version with collection, index
and hubness bank."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from bifocal.durable import write_json
from bifocal.hubness.bank import HubnessBank
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import FEATURES, FIELDS, write_states
from bifocal.search.index.build import index_of_collection
from bifocal.search.trained_model import COLLECTION, INDEX, ONNX, TrainedModel
from bifocal.serving.service.app import create_app
from bifocal.serving.service.settings import Settings
from components.cluster import fetch_release, find_release
from components.cluster import release as release_step
from components.cluster.steps import FETCH_RELEASE, FetchReleaseParams, FindReleaseParams
from pipelines.app.serve_sources import ReleaseSource, open_source
from runtime.artifacts import artifact_hash, hash_files
from runtime.mlflow import get_version_number
from runtime.mlflow.releases import describe_release, download_release
from runtime.spec import Params
from tests.bifocal.serving.runs import write_run
from tests.pipelines.releases import (
    EMBEDDING,
    add_release,
    move_alias,
    register,
    wait,
    write_released_run,
)

URI = "models:/bifocal@champion"
QUERY = "three red stars on a beach"


@pytest.fixture
def runs(demo: TrainedModel, tmp_path: Path) -> tuple[Path, Path]:
    """Two runs whose models give the same scores, with vectors that do not fit each other."""
    return write_released_run(demo, tmp_path / "a", "a-"), write_released_run(
        demo, tmp_path / "b", "b-", sign=-1
    )


@pytest.fixture
def versions(
    runs: tuple[Path, Path], mlflow_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int]:
    monkeypatch.chdir(tmp_path)  # MLflow writes artifacts beside its database
    first, second = (register(run) for run in runs)
    return first, second


def test_a_release_is_served_replaced_and_rolled_back_as_a_whole_without_loading_it_again(
    runs: tuple[Path, Path],
    versions: tuple[int, int],
    demo: TrainedModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = open_source(None, URI, None, None, None)
    assert isinstance(source, ReleaseSource)
    move_alias(versions[0])
    with pytest.raises(
        FileNotFoundError,
        match="version 1 of bifocal has no release: run python -m pipelines release",
    ):
        source.key()
    assert "bifocal version 1 now has the release" in add_release(runs[0])
    loaded: list[str] = []
    load = source.load
    monkeypatch.setattr(source, "load", lambda: loaded.append(source.key()) or load())
    with TestClient(
        create_app(source, Settings(), poll_seconds=0.05), base_url="http://localhost"
    ) as opened:

        def results() -> tuple[set[str], list[float]]:
            found = opened.post("/api/v1/search", json={"text": QUERY, "k": 5}).json()["results"]
            return {result["id"][0] for result in found}, [result["score"] for result in found]

        prefixes, scores = results()
        assert prefixes == {"a"}
        move_alias(versions[1])  # it has no release yet
        wait(lambda: "see the log" in opened.get("/readyz").text)
        assert results()[0] == {"a"}
        add_release(runs[1])
        wait(lambda: results()[0] == {"b"})
        # A query of one model in the vectors of the other would have negative scores.
        assert results()[1] == pytest.approx(scores, abs=1e-4)
        move_alias(versions[0])
        wait(lambda: results()[0] == {"a"})
        assert results()[1] == pytest.approx(scores)
        assert "version 1, release" in opened.get("/readyz").text
        move_alias(versions[1])
        wait(lambda: results()[0] == {"b"})
    assert [key.partition("-")[0] for key in loaded] == ["1", "2"]


def test_a_release_is_logged_once_a_version_has_the_last_one_and_images_are_on_this_machine(
    runs: tuple[Path, Path], versions: tuple[int, int], demo: TrainedModel, tmp_path: Path
) -> None:
    first, grown = runs[0], tmp_path / "grown"
    description = first / COLLECTION / "collection.json"
    description.write_text(json.dumps(json.loads(description.read_text()) | {"root": "../images"}))
    shutil.copytree(first, grown)
    shutil.rmtree(grown / COLLECTION)
    write_run(demo, tmp_path / "other", "grown-")
    shutil.copytree(tmp_path / "other" / COLLECTION, grown / COLLECTION)
    shutil.rmtree(grown / INDEX)
    (grown / INDEX).mkdir()
    bank = HubnessBank.read(grown / EMBEDDING)
    index_of_collection(Collection.open(grown / COLLECTION), bank).write(grown / INDEX)
    move_alias(versions[0])
    source = ReleaseSource(URI, None)
    keys = []
    for run, words in ((first, "now has"), (grown, "now has"), (first, "logged already")):
        assert words in add_release(run)
        keys.append(source.key())
    assert keys[0] == keys[2] != keys[1]
    missing, file = (
        model.items.file(model.index.row("a-00005"))
        for model in (source.load(), ReleaseSource(URI, Path("/")).load())
    )
    assert missing is not None
    assert file is not None
    assert not missing.exists()
    assert file.read_bytes() == Path(str(demo.collection.image(5))).read_bytes()


def test_parts_of_two_models_and_damaged_files_are_neither_released_nor_loaded(
    runs: tuple[Path, Path], versions: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    from runtime.mlflow.registry import RegisteredVersion
    from runtime.mlflow.releases import find_version, log_release

    first, second = runs
    for part, reason in ((COLLECTION, "another model"), (INDEX, "come from a model with hash")):
        parts = {COLLECTION: first / COLLECTION, INDEX: first / INDEX} | {part: second / part}
        with pytest.raises(ValueError, match=reason):
            describe_release(first / ONNX, parts[COLLECTION], parts[INDEX], first / EMBEDDING)
    with pytest.raises(
        ValueError, match=r"biases of .* are of .*CSLS.*, but .* has the hubness bank of None"
    ):
        describe_release(first / ONNX, first / COLLECTION, first / INDEX, first / ONNX)
    others = [second / part for part in (ONNX, COLLECTION, INDEX, EMBEDDING)]
    version = find_version("bifocal", artifact_hash(first / ONNX))
    with pytest.raises(ValueError, match="belongs to another model than version 1"):
        log_release(version, *others)
    with pytest.raises(ValueError, match="run python -m pipelines register first"):
        find_version("bifocal", "0" * 64)
    client = mlflow.MlflowClient()
    with monkeypatch.context() as without_download:
        without_download.delattr(RegisteredVersion, "download_graphs")
        for run in runs:
            add_release(run)
    client.set_model_version_tag("bifocal", "1", "hash.onnx", artifact_hash(second / ONNX))
    with pytest.raises(
        ValueError,
        match=r"manifest.json of version 1 .* has another hash than hash.onnx of its run",
    ):
        log_release(version, *others)
    client.set_model_version_tag("bifocal", "1", "hash.onnx", artifact_hash(first / ONNX))
    move_alias(versions[0])
    source = ReleaseSource(URI, None)
    version, other = (client.get_model_version("bifocal", str(number)) for number in versions)
    own, foreign = version.tags["release"], other.tags["release"]
    files = Path(client.get_run(version.run_id).info.artifact_uri) / "releases" / own
    # Somebody copies the files of the other model's release beside the own one, and names it.
    shutil.copytree(
        Path(client.get_run(other.run_id).info.artifact_uri) / "releases" / foreign,
        files.parent / foreign,
    )
    client.set_model_version_tag("bifocal", "1", "release", foreign)
    with pytest.raises(ValueError, match="belongs to another model than version 1"):
        source.load()
    client.set_model_version_tag("bifocal", "1", "release", own)
    vectors = files / "index" / "vectors.f16"
    content = vectors.read_bytes()
    vectors.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(
        ValueError, match=r"index/vectors.f16 of the release .* is missing, unknown or damaged"
    ):
        source.load()
    vectors.write_bytes(content)
    (files / "collection" / "items.parquet").rename(files / "moved.parquet")
    with pytest.raises(ValueError, match=r"collection/items.parquet .* is missing"):
        source.load()
    (files / "release.json").write_text((files.parent / foreign / "release.json").read_text())
    with pytest.raises(ValueError, match="another hash than the tag"):
        source.load()


def test_a_fetched_release_is_no_new_one_until_its_images_change(
    runs: tuple[Path, Path], versions: tuple[int, int], tmp_path: Path
) -> None:
    move_alias(versions[0])
    find = FindReleaseParams(seed=1, model="bifocal", alias="champion")
    with pytest.raises(FileNotFoundError, match="version 1 of bifocal has no release"):
        find_release.run(find)
    with pytest.raises(ValueError, match="no version of bifocal has the alias 'best'"):
        find_release.run(find.model_copy(update={"alias": "best"}))
    for alias in ("champion", "best"):  # neither has a release
        optional = find.model_copy(update={"alias": alias, "optional": True})
        assert find_release.run(optional) == {"version": "", "release": ""}
    nothing = {name: tmp_path / "nothing" / name for name in FETCH_RELEASE.outputs}
    fetch_release.run(
        FetchReleaseParams(seed=1, model="bifocal"), version="", release="", **nothing
    )
    assert not (tmp_path / "nothing").exists()
    add_release(runs[0])
    found = find_release.run(find)
    parts = {name: tmp_path / "fetched" / name for name in FETCH_RELEASE.outputs}
    for part in parts.values():
        part.mkdir(parents=True)
    fetch_release.run(FetchReleaseParams(seed=1, model="bifocal"), **found, **parts)
    assert hash_files(parts["embedding"]) == hash_files(runs[0] / EMBEDDING)
    assert not (parts["onnx"] / "manifest.json").exists()
    # A service does without the features, which the next collection needs.
    version = get_version_number("bifocal", 1)
    _, released = download_release(version, found["release"], tmp_path / "service")
    for folder, has_features in ((released / COLLECTION.name, False), (parts["collection"], True)):
        assert (folder / FEATURES).is_dir() is has_features
        assert Collection.open(folder).vectors[:].any(axis=1).all()

    def release_again() -> float:
        return release_step.run(Params(seed=1), **parts, released=parts["registration"])["released"]

    # A rerun of the stages on copies of the images writes other durations, hashes of inputs and
    # states of files.
    items = Collection.open(parts["collection"]).items.select(["item_id"])
    for number, name in enumerate(FIELDS, start=1):
        items = items.append_column(name, pa.array([number] * len(items)))
    write_states(parts["collection"], items)
    write_json(parts["collection"] / "manifest.json", {"metrics": {"images_per_second": 3.0}})
    description = parts["index"] / "index.json"
    write_json(
        description, json.loads(description.read_text()) | {"measured": None, "effort": None}
    )
    assert release_again() == 0.0
    assert find_release.run(find) == found
    bias = parts["index"] / "bias.npy"
    np.save(bias, np.load(bias) + 1)
    assert release_again() == 1.0
    assert find_release.run(find)["release"] not in ("", found["release"])
