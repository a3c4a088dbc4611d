"""Sources of ``bifocal serve``: versions of a registry with the collection in a folder, and a
second release."""

import shutil
from pathlib import Path

import click
import numpy as np
import pytest

from bifocal.search.query import EncodedQuery
from bifocal.search.trained_model import ONNX, TrainedModel
from bifocal.serving.service.models import RunSource
from pipelines.app.demo import unpack
from pipelines.app.serve_sources import RegistrySource, ReleaseSource, open_candidate, open_source
from tests.bifocal.serving.runs import COLLECTION, write_run
from tests.pipelines.app.conftest import Command, write_manifest


def promote(graphs: Path) -> None:
    """Register graphs as a new version, and make it the champion."""
    import mlflow  # takes seconds

    with mlflow.start_run():
        logged = mlflow.pyfunc.log_model(
            name="model",
            loader_module="runtime.mlflow.served_model",
            data_path=str(graphs),
            pip_requirements=[],
        )
    version = mlflow.register_model(logged.model_uri, "bifocal")
    mlflow.MlflowClient().set_registered_model_alias("bifocal", "champion", version.version)


@pytest.mark.slow
def test_a_promoted_version_comes_into_use_when_its_collection_is_there(
    mlflow_store: str, demo: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MLflow writes artifacts beside its database
    first, second = (
        write_run(demo, tmp_path / "first"),
        write_run(demo, tmp_path / "second", sign=-1),
    )
    folder = Path(shutil.copytree(first / COLLECTION, tmp_path / "collection"))
    source = open_source(None, "models:/bifocal@champion", folder, None)
    with pytest.raises(FileNotFoundError, match="no version of bifocal with the alias champion"):
        source.key()
    promote(first / ONNX)
    key = source.key()
    assert source.load().version.model == "bifocal version 1"
    promote(second / ONNX)
    assert source.key() != key
    with pytest.raises(ValueError, match="embedded by another model"):
        source.load()
    shutil.rmtree(folder)
    shutil.copytree(second / COLLECTION, folder)
    served = source.load()
    assert served.version.model == "bifocal version 2"
    sentence = ["three red stars on a beach"]
    order = np.argsort(
        -(np.asarray(demo.collection.vectors[:], np.float64) @ demo.encode_text(sentence)[0])
    )
    hits = served.search.rank(
        EncodedQuery(served.embedder.embed_sentences(sentence)[0], sentence[0]), 3
    )
    assert [hit.id for hit in hits] == [demo.collection.ids[row] for row in order[:3]]


def test_a_file_that_differs_from_its_manifest_is_refused(tmp_path: Path, command: Command) -> None:
    run = tmp_path / "demo"
    unpack(run)
    served = {name: run / "artifacts" / name for name in ("onnx", "collection", "index")}
    for artifact in served.values():
        write_manifest(artifact)
    source = open_source(run, None, None, None)
    source.load()
    for file in (
        *served["onnx"].glob("*.onnx"),
        *served["collection"].rglob("*.npy"),
        served["index"] / "bias.npy",
    ):
        content = file.read_bytes()
        file.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        with pytest.raises(
            ValueError, match=rf"{file.name} differs from its hash in manifest\.json"
        ):
            source.load()
        file.write_bytes(content)
    (served["index"] / "bias.npy").unlink()
    with pytest.raises(ValueError, match=r"bias\.npy is missing"):
        source.load()
    result = command("serve", "--run", run)
    assert "bias.npy is missing, but it is in manifest.json" in str(result.exception)


def test_options_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="needs --collection"):
        open_source(None, "models:/bifocal@champion", None, tmp_path)
    with pytest.raises(click.UsageError, match="excludes --run"):
        open_source(tmp_path, "models:/bifocal@champion", None, None)
    with pytest.raises(click.UsageError, match="expected models:/NAME@ALIAS"):
        RegistrySource("https://evil.example/model", tmp_path, None)


def test_options_of_a_second_release_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    champion, candidate = "models:/bifocal@champion", "models:/bifocal@candidate"
    source = ReleaseSource(champion, None)
    assert open_candidate(source, None, None, None) is None
    for options, reason in (
        ((candidate, candidate, None), "exclude each other"),
        ((None, None, 0.1), "needs --canary or --shadow"),
        (("other", None, None), "expected models:/NAME@ALIAS"),
    ):
        with pytest.raises(click.UsageError, match=reason):
            open_candidate(source, *options)
    with pytest.raises(click.UsageError, match="--shadow compares releases: it needs --model"):
        open_candidate(RunSource(tmp_path), None, candidate, None)
