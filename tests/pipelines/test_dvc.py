"""'dvc repro' runs the pipeline once, and then changed stages only."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import mlflow
import onnx
import pandas as pd
import pytest

from components.catalog import pipeline_components
from runtime.artifacts import artifact_hash, read_manifest
from runtime.identity import INFRASTRUCTURE, packages, sources
from runtime.parameters import load
from tests.pipelines.small_checkout import (
    HOME,
    ROOT,
    STAGES,
    changed_stages,
    make_checkout,
    repro,
    run,
)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, warm_python: Path) -> Iterator[Path]:
    """Copy of this checkout where the small recipe has run, with the warm ``python`` first in
    ``PATH``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "PATH",
            os.pathsep.join(
                map(str, [warm_python, Path(sys.executable).parent, os.environ["PATH"]])
            ),
        )
        folder = tmp_path_factory.mktemp("checkout")
        make_checkout(folder)
        yield folder


def test_a_model_is_registered_and_every_stage_is_tracked(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = checkout / HOME / "artifacts"
    assert "registered bifocal version 1" in run(
        checkout, "python", "-m", "pipelines", "register", HOME
    )
    for component in pipeline_components():
        for name in component.outputs:
            manifest = read_manifest(artifacts / name)
            assert manifest["component"] == component.name
            assert set(manifest["inputs"]) == set(component.inputs)
    metrics = json.loads((artifacts / "metrics" / "metrics.json").read_text())
    for group in (metrics, metrics["reranked"], metrics["chance"]):
        for direction in ("caption_retrieval", "image_retrieval"):
            assert {"R@1", "R@5", "R@10", "median_rank"} <= group[direction].keys()
    for branch in ("image_encoder", "text_encoder"):
        onnx.checker.check_model(str(artifacts / "onnx" / f"{branch}.onnx"))

    monkeypatch.chdir(checkout)
    mlflow.set_tracking_uri(f"sqlite:///{checkout}/mlflow.db")
    client = mlflow.MlflowClient()
    version = client.get_model_version_by_alias("bifocal", "candidate")
    assert (
        version.tags["hash.embedding"] == read_manifest(artifacts / "onnx")["inputs"]["embedding"]
    )
    (experiment,) = [e for e in client.search_experiments() if e.name == "bifocal"]
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = [entry for entry in runs if "stage" not in entry.data.tags]
    stages = {entry.data.tags["stage"]: entry for entry in runs if entry is not parent}
    assert stages.keys() == {component.name for component in pipeline_components()}
    assert all(
        entry.data.tags["mlflow.parentRunId"] == parent.info.run_id for entry in stages.values()
    )
    assert all(entry.info.status == "FINISHED" for entry in runs)
    loss = load(checkout / HOME / "params.yaml")["train_embedding"]["phases"][0]["loss"]["name"]
    assert stages["train_embedding"].data.params["phases.0.loss.name"] == loss
    assert "input.dataset" in stages["train_embedding"].data.tags

    model = mlflow.pyfunc.load_model("models:/bifocal@candidate")
    answer = model.predict(pd.DataFrame({"text": ["a red circle", "a blue star on grass"]}))
    assert [len(embedding) for embedding in answer["embedding"]] == [16, 16]


def test_experiments_have_at_most_12_columns_of_metrics(checkout: Path) -> None:
    (shown,) = json.loads(run(checkout, "dvc", "metrics", "show", "--json")).values()
    metrics = shown["data"][f"{HOME}/artifacts/metrics/summary.json"]["data"]
    assert 4 <= len(metrics) <= 12


def test_a_second_repro_runs_no_stage(checkout: Path) -> None:
    assert repro(checkout) == set()


def test_a_repeated_run_of_another_commit_leaves_the_lock_as_it_is(checkout: Path) -> None:
    lock = checkout / HOME / "dvc.lock"
    previous = lock.read_bytes()
    (checkout / "another.txt").write_text("another commit")
    run(checkout, "git", "add", "another.txt")
    identity = ("-c", "user.name=test", "-c", "user.email=test", "-c", "commit.gpgsign=false")
    run(checkout, "git", *identity, "commit", "--quiet", "--no-verify", "--message", "another")
    run(checkout, "dvc", "repro", "--force", f"{HOME}/dvc.yaml")
    assert lock.read_bytes() == previous


def test_the_dependencies_of_each_stage_hold_every_module_that_it_imported(checkout: Path) -> None:
    for stage in STAGES:
        imported = (checkout / "imports" / stage.name).read_text().splitlines()
        assert stage.module in imported
        for module in (name for name in imported if not name.startswith(INFRASTRUCTURE)):
            path = module.replace(".", "/")
            assert {f"{path}.py", f"{path}/__init__.py"} & set(sources(stage).files), (
                stage.name,
                module,
            )


def test_dvc_repeats_the_stages_that_a_change_of_the_code_can_affect(checkout: Path) -> None:
    changes = {
        "bifocal/datasets/dataset.py": ('"""', '"""Other words. '),  # no stage
        "bifocal/losses/triplet.py": ("margin: float = 0.2", "margin: float = 0.3"),
        "bifocal/report/style.css": ("", "/* a comment */"),
    }
    previous = {checkout / file: (checkout / file).read_text() for file in changes}
    for path, (old, new) in zip(previous, changes.values(), strict=True):
        assert old in previous[path]
        path.write_text(previous[path].replace(old, new, 1))
    assert changed_stages(checkout) == {
        "train_embedding",
        "evaluate",
    }  # by the loss, and by the style
    for path, text in previous.items():
        path.write_text(text)


def test_an_upgrade_of_torch_repeats_the_stages_that_import_it(checkout: Path) -> None:
    upgrade = checkout / "imports" / "torch-99.0.dist-info"
    upgrade.mkdir()
    (upgrade / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 99.0\n")
    with_torch = {stage.name for stage in STAGES if "torch" in packages(stage)}
    assert "prepare_dataset" not in with_torch
    assert changed_stages(checkout) == with_torch
    shutil.rmtree(upgrade)


def test_another_loss_reruns_training_and_its_dependents(checkout: Path) -> None:
    recipe = checkout / "small.yaml"
    recipe.write_text(
        recipe.read_text().replace("{name: InfoNCELoss, temperature: 0.07}", "TripletLoss")
    )
    assert repro(checkout) == {
        "train_embedding",
        "evaluate",
        "export_onnx",
        "embed_collection",
        "build_index",
    }
    assert "registered bifocal version 2" in run(
        checkout, "python", "-m", "pipelines", "register", HOME
    )


def test_the_candidate_follows_the_parameters_back(checkout: Path) -> None:
    recipe = checkout / "small.yaml"
    changed, previous = recipe.read_text(), (ROOT / "tests" / "small.yaml").read_text()
    assert changed != previous
    recipe.write_text(previous)
    assert repro(checkout) == set(), "the run cache has all outputs"
    assert "bifocal version 1 has this model" in run(
        checkout, "python", "-m", "pipelines", "register", HOME
    )
    client = mlflow.MlflowClient(f"sqlite:///{checkout}/mlflow.db")
    candidate = client.get_model_version_by_alias("bifocal", "candidate")
    assert candidate.tags["hash.onnx"] == artifact_hash(checkout / HOME / "artifacts" / "onnx")
    assert len(client.search_model_versions("name = 'bifocal'")) == 2


def test_a_failed_command_of_the_warm_python_is_an_error(checkout: Path) -> None:
    (checkout / "probe.py").write_text(
        "import os, sys; print(os.getcwd(), *sys.argv[1:]); sys.exit(int(sys.argv[1]))"
    )
    assert run(checkout, "python", "-m", "probe", "0", "a b") == f"{checkout} 0 a b\n"
    with pytest.raises(AssertionError, match="python -m probe 3"):
        run(checkout, "python", "-m", "probe", "3")
