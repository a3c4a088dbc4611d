"""'dvc repro' runs the pipeline once, and then changed stages only."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import mlflow
import onnx
import pandas as pd
import pytest
from moto.server import ThreadedMotoServer

from components.catalog import pipeline_components
from pipelines.dvc import PACKAGES_STAGE, dvc_components
from runtime.artifacts import artifact_hash, hash_files, read_manifest
from runtime.closure import INFRASTRUCTURE
from runtime.identity import packages, sources
from runtime.parameters import load

ROOT = Path(__file__).parents[2]
HOME = "runs/small"
STAGES = dvc_components()
RECORD_IMPORTS = """
import atexit, os, pathlib, sys

stage = sys.orig_argv[3] if sys.orig_argv[1:3] == ["-m", "components"] else "none"

class Forget:  # the imports of the check of all parameters, which every stage does before it imports its run.py
    def find_spec(self, name, path=None, target=None):
        if name == f"components.{stage}.run":
            for other in [other for other in sys.modules if other.partition(".")[0] == "bifocal"]:
                del sys.modules[other]

def record():
    names = [name for name in sys.modules if name.startswith(("bifocal", f"components.{stage}"))]
    (pathlib.Path(os.environ["RECORDED_IMPORTS"]) / stage).write_text("\\n".join(names))

sys.meta_path.insert(0, Forget())
atexit.register(record)
"""
"""sitecustomize.py of the stages: writes the modules that each imported."""


def run(checkout: Path, *command: str) -> str:
    """Run a command in the checkout; return its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    if (checkout / "imports").is_dir():
        environment |= {"PYTHONPATH": str(checkout / "imports"), "RECORDED_IMPORTS": str(checkout / "imports")}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def repro(checkout: Path) -> set[str]:
    """Render and run the small recipe; return the names of the executed stages."""
    run(checkout, "python", "-m", "pipelines", "render", "--recipe", "small.yaml")
    lines = run(checkout, "dvc", "repro", f"{HOME}/dvc.yaml").splitlines()
    # "Running stage 'runs/small/dvc.yaml:evaluate':"
    names = {line.split(":")[1].rstrip("'") for line in lines if line.startswith("Running stage")}
    assert PACKAGES_STAGE in names, "the installed versions are compared each time"
    return names - {PACKAGES_STAGE}


def changed_stages(checkout: Path) -> set[str]:
    """Stages that 'dvc status' shows as changed themselves, not by an input, once versions and code are compared."""
    run(checkout, "dvc", "repro", f"{HOME}/dvc.yaml:{PACKAGES_STAGE}")
    status = json.loads(run(checkout, "dvc", "status", "--json", f"{HOME}/dvc.yaml"))
    return {name.split(":")[1] for name in status} - {PACKAGES_STAGE}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy of this checkout where the small recipe has run."""
    folder = tmp_path_factory.mktemp("checkout")
    files = run(ROOT, "git", "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")
    for name in filter(lambda name: (ROOT / name).is_file(), files):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    (folder / "small.yaml").write_bytes((ROOT / "tests" / "small.yaml").read_bytes())
    (folder / "imports").mkdir()
    (folder / "imports" / "sitecustomize.py").write_text(RECORD_IMPORTS)
    (folder / ".git" / "info").mkdir(parents=True)
    (folder / ".git" / "info" / "exclude").write_text("/imports/\n")
    run(folder, "git", "init", "--quiet")
    assert repro(folder) == {component.name for component in STAGES}
    return folder


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """S3 server with a bucket, and a git identity."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    credentials = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    identity = {f"GIT_{role}_{field}": "test" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
    for name, value in {**credentials, **identity}.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket="bucket")
    yield endpoint
    server.stop()


def test_a_model_is_registered_and_every_stage_is_tracked(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifacts = checkout / HOME / "artifacts"
    assert "registered bifocal version 1" in run(checkout, "python", "-m", "pipelines", "register", HOME)
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
    assert version.tags["hash.embedding"] == read_manifest(artifacts / "onnx")["inputs"]["embedding"]
    (experiment,) = [e for e in client.search_experiments() if e.name == "bifocal"]
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = [entry for entry in runs if "stage" not in entry.data.tags]
    stages = {entry.data.tags["stage"]: entry for entry in runs if entry is not parent}
    assert stages.keys() == {component.name for component in pipeline_components()}
    assert all(entry.data.tags["mlflow.parentRunId"] == parent.info.run_id for entry in stages.values())
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


def test_the_dependencies_of_each_stage_hold_every_module_that_it_imported(checkout: Path) -> None:
    for stage in STAGES:
        imported = (checkout / "imports" / stage.name).read_text().splitlines()
        assert f"{stage.module}.run" in imported
        for module in (name for name in imported if not name.startswith(INFRASTRUCTURE)):
            path = module.replace(".", "/")
            assert {f"{path}.py", f"{path}/__init__.py"} & set(sources(stage).files), (stage.name, module)


@pytest.mark.parametrize(
    ("file", "old", "new", "stages"),
    [
        ("bifocal/datasets/dataset.py", '"""', '"""Other words. ', set()),
        ("bifocal/losses/triplet.py", "margin: float = 0.2", "margin: float = 0.3", {"train_embedding"}),
        ("bifocal/report/style.css", "", "/* a comment */", {"evaluate"}),
    ],
)
def test_dvc_repeats_the_stages_that_a_change_of_the_code_can_affect(
    checkout: Path, file: str, old: str, new: str, stages: set[str]
) -> None:
    path = checkout / file
    former = path.read_text()
    assert old in former
    path.write_text(former.replace(old, new, 1))
    assert changed_stages(checkout) == stages
    path.write_text(former)


def test_an_upgrade_of_torch_repeats_the_stages_that_import_it(checkout: Path) -> None:
    upgrade = checkout / "imports" / "torch-99.0.dist-info"
    upgrade.mkdir()
    (upgrade / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 99.0\n")
    assert changed_stages(checkout) == {stage.name for stage in STAGES if "torch" in packages(stage)}
    assert "prepare_dataset" not in changed_stages(checkout)
    shutil.rmtree(upgrade)
    assert changed_stages(checkout) == set()


def test_a_clone_pulls_the_artifacts_from_s3_and_runs_no_stage(checkout: Path, s3: str, tmp_path: Path) -> None:
    for command in (
        ("dvc", "remote", "add", "--default", "--force", "s3", "s3://bucket/dvc"),
        ("dvc", "remote", "modify", "s3", "endpointurl", s3),
        ("dvc", "push", "--quiet", f"{HOME}/dvc.yaml"),
        ("git", "add", "."),
        ("git", "commit", "--quiet", "--message", "run"),
        ("git", "clone", "--quiet", ".", str(tmp_path / "other")),
    ):
        run(checkout, *command)
    other, artifacts = tmp_path / "other", Path(HOME) / "artifacts"
    assert not (other / artifacts / "dataset").exists()
    run(other, "dvc", "pull", "--quiet", f"{HOME}/dvc.yaml")
    for name in (name for stage in STAGES for name in stage.outputs):
        assert hash_files(other / artifacts / name) == hash_files(checkout / artifacts / name)
    assert repro(other) == set()


def test_another_loss_reruns_training_and_its_dependents(checkout: Path) -> None:
    recipe = checkout / "small.yaml"
    recipe.write_text(recipe.read_text().replace("{name: InfoNCELoss, temperature: 0.07}", "TripletLoss"))
    assert repro(checkout) == {"train_embedding", "evaluate", "export_onnx", "embed_collection", "build_index"}
    assert "registered bifocal version 2" in run(checkout, "python", "-m", "pipelines", "register", HOME)


def test_the_candidate_follows_the_parameters_back(checkout: Path) -> None:
    recipe = checkout / "small.yaml"
    changed, former = recipe.read_text(), (ROOT / "tests" / "small.yaml").read_text()
    assert changed != former
    recipe.write_text(former)
    assert repro(checkout) == set(), "the run cache has all outputs"
    assert "bifocal version 1 has this model" in run(checkout, "python", "-m", "pipelines", "register", HOME)
    client = mlflow.MlflowClient(f"sqlite:///{checkout}/mlflow.db")
    candidate = client.get_model_version_by_alias("bifocal", "candidate")
    assert candidate.tags["hash.onnx"] == artifact_hash(checkout / HOME / "artifacts" / "onnx")
    assert len(client.search_model_versions("name = 'bifocal'")) == 2


def test_a_killed_training_resumes_to_the_same_bits(checkout: Path) -> None:
    embedding = checkout / HOME / "artifacts" / "embedding"
    expected = hashlib.sha256((embedding / "model.safetensors").read_bytes()).hexdigest()
    command = [
        *(sys.executable, "-m", "components", "train_embedding"),
        *("--params", f"{HOME}/params.yaml", "--artifacts", f"{HOME}/artifacts"),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=checkout, env=environment, stderr=subprocess.DEVNULL) as process:
        checkpoint = embedding.with_name("embedding.partial") / "checkpoints" / "phase-0" / "last.safetensors"
        while not checkpoint.is_file():
            assert process.poll() is None, "the training ended before it was killed"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert hashlib.sha256((embedding / "model.safetensors").read_bytes()).hexdigest() == expected
    run(checkout, *command)
    assert hashlib.sha256((embedding / "model.safetensors").read_bytes()).hexdigest() == expected
    assert not embedding.with_name("embedding.partial").exists()
