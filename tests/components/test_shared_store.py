"""Large artifacts by reference: the pod's folders hold only manifests, and readers find the files
in the store."""

import shutil
from pathlib import Path

import pytest

from bifocal.datasets import read_dataset
from bifocal.durable import write_json
from components.catalog import all_components
from runtime import artifacts, parameters
from runtime.shared_store import REFERENCE, resolve
from runtime.stage import Job, run_stage

ROOT = Path(__file__).parents[2]
CHANGES = {
    "prepare_dataset": {"corpus": {"train": 6, "val": 2, "test": 2, "size": 64}},
    "vectorize_captions": {"vectorizer": {"name": "TFIDF"}},
}
VALUES = parameters.merge(parameters.load(ROOT / "params.yaml"), CHANGES)


def run(stage: str, pod: Path, **inputs: Path) -> Path:
    """Run a stage in the folder of a pod; return its only output."""
    component = all_components()[stage]
    section = {"seed": VALUES["seed"], stage: VALUES[stage]}
    params = parameters.validate(section, [component])[stage]
    (output,) = component.outputs
    run_stage(Job(component, params, inputs, {output: pod / output}, VALUES))
    return pod / output


@pytest.fixture
def store(tmp_path: Path, mlflow_store: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BIFOCAL_STORE", str(tmp_path / "store"))
    return tmp_path / "store"


def test_steps_pass_references_and_read_the_files_of_the_store(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = run("prepare_dataset", tmp_path / "first")
    assert {path.name for path in dataset.iterdir()} == {artifacts.MANIFEST, REFERENCE}
    place = resolve(dataset)
    assert place.is_relative_to(store / "dataset")
    assert len(read_dataset(place).images) == 10
    assert artifacts.artifact_hash(dataset) == artifacts.artifact_hash(place)

    # Kubeflow copies the output of the first pod into the second one, which mounts the store
    # elsewhere.
    copied = shutil.copytree(dataset, tmp_path / "second" / "dataset")
    monkeypatch.setenv("BIFOCAL_STORE", str(store.rename(tmp_path / "mounted")))
    text = run("vectorize_captions", tmp_path / "second", dataset=copied)
    assert artifacts.read_manifest(resolve(text))["inputs"] == {
        "dataset": artifacts.artifact_hash(dataset)
    }

    # A repeated step does not touch the files that other steps have mapped.
    before = {
        path: path.stat().st_ino for path in (tmp_path / "mounted").rglob("*") if path.is_file()
    }
    assert resolve(run("prepare_dataset", tmp_path / "third")).name == place.name
    assert {
        path: path.stat().st_ino for path in (tmp_path / "mounted").rglob("*") if path.is_file()
    } == before


def test_reference_without_its_files_is_an_error(
    tmp_path: Path, mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIFOCAL_STORE", str(tmp_path / "store"))
    dataset = run("prepare_dataset", tmp_path / "pod")
    place = resolve(dataset)
    manifest = artifacts.read_manifest(place)
    write_json(place / artifacts.MANIFEST, {**manifest, "files": {}})
    with pytest.raises(ValueError, match=r"is not the artifact that .* refers to"):
        resolve(dataset)
    next(place.glob("*.parquet")).unlink()
    with pytest.raises(
        FileNotFoundError,
        match="was deleted from the shared store: run the pipeline once with --no",
    ):
        resolve(dataset)
    monkeypatch.delenv("BIFOCAL_STORE")
    with pytest.raises(ValueError, match="mount the store, and set BIFOCAL_STORE"):
        resolve(dataset)
