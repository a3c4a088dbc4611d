"""Flows on this machine: user files are read in place, without a commit, a copy or a remote."""

import json
import os
from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from components.cluster.fingerprint import run as fingerprint
from components.cluster.steps import FingerprintParams
from pipelines.commands import main
from pipelines.kubeflow import compile as kubeflow
from pipelines.kubeflow import resources
from pipelines.local.runner import LocalRun
from runtime import parameters
from tests.pipelines.compiled import REVISION, ROOT, VALUES, arguments, documents, tasks_of

OWN = {
    "prepare_dataset": {"corpus": {"name": "ImageFolder", "root": "photos"}, "copy_images": False},
    "extract_features": {"weights": {"name": "FromFile", "path": "/weights/a.safetensors"}},
}


def test_paths_are_absolute_and_in_the_cache_key_by_their_fingerprint() -> None:
    values = parameters.merge(VALUES, OWN)
    with pytest.raises(parameters.ParameterError, match="copy_images is false"):
        kubeflow.compile_pipeline(values, resources.load(), REVISION)
    here = resources.load().model_copy(update={"repository": "", "push": False})
    pipeline, _ = documents(kubeflow.compile_pipeline(values, here, "unknown"))
    tasks = tasks_of(pipeline)
    assert not [name for name in tasks if name.startswith("fetch")]
    given = arguments(tasks["prepare-dataset"])
    section = json.loads(given["parameters"])["prepare_dataset"]
    assert section["corpus"]["root"] == str(Path.cwd() / "photos")
    assert given["versions"]["taskOutputParameter"]["producerTask"] == "fingerprint"
    sources = json.loads(arguments(tasks["fingerprint"])["parameters"])["fingerprint"]["sources"]
    assert sources == {
        "prepare_dataset": [str(Path.cwd() / "photos")],
        "extract_features": ["/weights/a.safetensors"],
    }


def test_versions_without_a_repository_follow_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KFP_RUN_ID", raising=False)
    photos, weights = tmp_path / "photos", tmp_path / "weights.bin"
    photos.mkdir()
    weights.write_bytes(b"x")
    params = FingerprintParams(
        seed=0, sources={"prepare_dataset": [str(photos)], "extract_features": [str(weights)]}
    )

    def versions() -> tuple[str, str]:
        found = fingerprint(params, repository="", revision="unknown")
        return found["prepare_dataset"], found["extract_features"]

    first = versions()
    assert versions() == first
    (photos / "a.jpg").write_bytes(b"x")
    added = versions()
    assert (added[0] != first[0], added[1]) == (True, first[1])
    os.utime(photos / "a.jpg", (1, 1))
    assert versions()[0] != added[0]
    (photos / "a.jpg").rename(photos / os.fsdecode(b"b\xff.jpg"))
    assert len({first[0], added[0], versions()[0]}) == 3
    weights.unlink()
    with pytest.raises(ValueError, match=r"weights\.bin: no such file or folder"):
        versions()


def test_a_run_on_this_machine_needs_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("pipelines.commands.cluster.ask_git", lambda *arguments: "")
    monkeypatch.setattr("pipelines.commands.cluster.git_answer", lambda *arguments: ("", "no git"))
    (tmp_path / "recipe.yaml").write_text(parameters.dump_yaml(OWN))
    command, seen = ["run", "--recipe", str(tmp_path / "recipe.yaml")], []

    def execute(run: LocalRun) -> dict[str, object]:
        seen.append((run.arguments, run.text))
        return {}

    with patch.object(LocalRun, "execute", execute):
        assert CliRunner().invoke(main, command).exit_code == 0
        for other in (["--push"], ["--runner", "container"]):
            assert "no commit of this folder is known" in str(
                CliRunner().invoke(main, [*command, *other]).exception
            )
            monkeypatch.setattr(
                "pipelines.local.container_engine.ContainerEngine", lambda *arguments: None
            )
            monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
            refused = CliRunner().invoke(main, [*command, *other, "--revision", REVISION])
            assert "copy_images is false" in str(refused.exception)
    ((given, text),) = seen
    assert given == {}
    assert "extract-features-2" not in text
