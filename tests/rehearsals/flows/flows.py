"""Weeks of the flows retrain, refresh and monitor with real stages, MLflow and S3:
``make rehearse-schedule``, minutes.

``python -m pipelines run`` and its steps run in this process, because imports take seconds. One run
is a process that is killed.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3
import pytest
import yaml
from click.testing import CliRunner
from mlflow import MlflowClient
from mlflow.entities import Run

from bifocal.datasets.corpora import Scenes
from bifocal.progress import log_line
from components.catalog import pipeline_components
from pipelines.commands import main as pipelines
from pipelines.kubeflow.flows import SEARCH
from pipelines.policies import load_promotion
from runtime.mlflow.connection import EXPERIMENT
from runtime.mlflow.parents import KFP_RUN_TAG, PARENT_TAG
from tests.flickr8k_bucket import ADDRESS, upload_scenes
from tests.pipelines.compiled import REVISION, ROOT
from tests.pipelines.local.mixed_engine import MixedEngine
from tests.rehearsals.faults.processes import kill_group
from tests.rehearsals.flows.weekly_schedule import WEIGHTS, upload_weights

TRAINING = {stage.name for stage in pipeline_components()} - {"prepare_dataset", *SEARCH}
STATE = re.compile(r"^([a-z0-9-]+): (complete|cached|canceled)\b", re.MULTILINE)
RECIPES = {
    "weekly.yaml": {
        "prepare_dataset": {"corpus": {"name": "Flickr8k", "root": ADDRESS}},
        "extract_features": {"weights": {"name": "FromFile", "path": f"s3://bucket/{WEIGHTS}"}},
        "train_embedding": {"phases": {0: {"epochs": 12, "learning_rate": 0.003}}},
        "embed_collection": {"source": "s3://bucket/collection"},
    },
    "cluster.yaml": {
        "monitoring": {"folder": "s3://bucket/monitoring", "queries": ["s3://bucket/queries.txt"]},
        "steps": {"extract_features": {"shards": 1}},
    },
}
TEST, VAL = 120, 12
"""Images of the splits in every week."""
# For a corpus without phrases that has fewer test images, drawn ones, which look alike; accepts
# uncommitted code.
POLICY = load_promotion().model_copy(
    update={
        "min_images": TEST,
        "looks": 4,
        "floors": {"recall_sum": 1.0},
        "max_drops": {"image_retrieval.R@1": 4.0},
        "max_near_duplicates": 1.0,
        "allow_dirty": True,
    }
)


class Weeks:
    """A folder in which flows are run one after another.

    Args:
        folder: becomes the working directory.
        store: address of the MLflow store.
    """

    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self.client = folder, MlflowClient(store)
        folder.mkdir()
        shutil.copy(ROOT / "params.yaml", folder)
        shutil.copy(ROOT / "tests" / "small.yaml", folder)
        for name, values in RECIPES.items():
            (folder / name).write_text(yaml.safe_dump(values))

    def command(self, flow: str) -> list[str]:
        """Return the arguments of a flow. All flows share one cache, as on a cluster."""
        options = {
            "--flow": flow,
            "--folder": "cluster",
            "--resources": "cluster.yaml",
            "--revision": REVISION,
        }
        return [
            "run",
            "--recipe",
            "small.yaml",
            "--recipe",
            "weekly.yaml",
            *itertools.chain(*options.items()),
        ]

    def run(self, flow: str) -> dict[str, str]:
        """Run a flow; return the state of each task. Prints its duration and its cost as MLflow has
        them."""
        # torch.onnx exports once per process.
        engine = partial(MixedEngine, processes=("export_onnx",))
        with (
            patch("pipelines.kubeflow.flows.load_promotion", return_value=POLICY),
            patch("pipelines.local.engine.HostEngine", engine),
        ):
            result = CliRunner().invoke(pipelines, self.command(flow))
        assert result.exit_code == 0, f"{result.output[-3000:]}\n{result.exception}"
        states = dict(STATE.findall(result.output))
        metrics = self.last_run().data.metrics
        cost = ", ".join(
            f"{name} {metrics[name]:.4f}" for name in ("duration_seconds", "core_hours")
        )
        log_line(f"{flow}: {cost}; ran {', '.join(sorted(ran(states)))}")
        return states

    def kill(self, flow: str, step: str) -> None:
        """Start a flow as a process, and kill its process group while a step runs."""
        log, environment = (
            self.folder / "log.txt",
            os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        )
        command = [sys.executable, "-m", "pipelines", *self.command(flow)]
        with log.open("w") as output:
            process = subprocess.Popen(
                command, stdout=output, env=environment, start_new_session=True
            )
        while f"{step}: attempt" not in log.read_text():
            assert process.poll() is None, log.read_text()[-3000:]
            time.sleep(0.1)
        kill_group(process)

    def last_run(self) -> Run:
        """Return the MLflow run of the last flow, after checking that each of its stages has its
        cost."""
        experiment = self.client.get_experiment_by_name(EXPERIMENT)
        runs = self.client.search_runs(
            [experiment.experiment_id], order_by=["attributes.start_time DESC"]
        )
        parent = next(
            run for run in runs if KFP_RUN_TAG in run.data.tags and PARENT_TAG not in run.data.tags
        )
        stages = [run for run in runs if run.data.tags.get(PARENT_TAG) == parent.info.run_id]
        assert parent.info.status == "FINISHED"
        assert all(run.data.metrics["duration_seconds"] > 0 for run in stages)
        hours = sum(run.data.metrics["core_hours"] for run in stages)
        assert parent.data.metrics["core_hours"] == pytest.approx(hours)
        return parent

    def registry(self) -> tuple[int, int, str]:
        """Return how many versions exist, the champion's number, and its release's hash."""
        champion = self.client.get_model_version_by_alias("bifocal", "champion")
        versions = self.client.search_model_versions("name = 'bifocal'")
        return len(versions), int(champion.version), champion.tags["release"]

    def metrics(self, step: str, artifact: str) -> dict[str, Any]:
        """Return the metrics of the last run of a step."""
        manifest = (self.folder / "cluster" / step / artifact / "manifest.json").read_text()
        metrics: dict[str, Any] = json.loads(manifest)["metrics"]
        return metrics

    def is_accepted(self) -> bool:
        """Return the last decision of the step promote, and print its reasons."""
        decision = json.loads(
            (self.folder / "cluster" / "promote" / "promotion" / "decision.json").read_text()
        )
        log_line(f"accepted: {decision['accepted']}, {decision['reasons']}, {decision['metrics']}")
        accepted: bool = decision["accepted"]
        return accepted


def upload_collection(folder: Path, images: int) -> None:
    """Upload the first of the drawn images of a collection."""
    corpus = Scenes(seed=2, train=images, val=1, test=1, size=64).read(folder)
    for image in corpus.images:
        if image.split == "train":
            boto3.client("s3").upload_file(
                str(folder / str(image.path)), "bucket", f"collection/{image.image_id}.jpg"
            )


@pytest.fixture
def weeks(s3: None, mlflow_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Weeks:
    """A corpus, weights, a collection and queries in S3, and a checkout."""
    upload_weights(tmp_path)
    upload_scenes(tmp_path / "scenes", train=40, val=VAL, test=TEST)
    upload_collection(tmp_path / "collection", 60)
    captions = Scenes(seed=2, train=60, val=1, test=1, size=64).read(tmp_path / "captions").captions
    queries = "\n".join(caption.text for caption in captions)
    boto3.client("s3").put_object(Bucket="bucket", Key="queries.txt", Body=queries.encode())
    weeks = Weeks(tmp_path / "home", mlflow_store)
    monkeypatch.chdir(weeks.folder)
    return weeks


def ran(states: dict[str, str]) -> set[str]:
    """Return the steps that ran, by the names of their components."""
    return {name.replace("-", "_") for name, state in states.items() if state == "complete"}


@pytest.mark.timeout(0)
def test_weeks_of_the_flows(weeks: Weeks, tmp_path: Path) -> None:
    # The first model: trained, evaluated, embedded, released and promoted.
    assert ran(weeks.run("retrain")) >= {*TRAINING, *SEARCH, "release", "promote", "promote_2"}
    assert weeks.is_accepted()
    versions, champion, first = weeks.registry()
    assert (versions, champion) == (1, 1)

    # Nothing changed: nothing is trained or embedded.
    states = weeks.run("retrain")
    assert ran(states) == {"fingerprint", "find_changes", "notify"}
    assert states["if-changed"] == "canceled"
    assert weeks.registry() == (1, 1, first)

    # The reference of the champion.
    weeks.run("monitor")
    assert weeks.metrics("monitor", "monitoring") == {"references": 1.0}

    # New images: only they are embedded, and the champion has another release.
    upload_collection(tmp_path / "more", 120)
    assert ran(weeks.run("refresh")) >= {*SEARCH, "release"}  # the release was fetched by monitor
    embedded = weeks.metrics("embed-collection", "collection")
    assert (embedded["embedded"], embedded["kept"]) == (60, 60)
    versions, champion, second = weeks.registry()
    assert (versions, champion) == (1, 1)
    assert second != first

    # No new images: the release stays.
    weeks.run("refresh")
    embedded = weeks.metrics("embed-collection", "collection")
    assert (embedded["embedded"], embedded["kept"]) == (0, 120)
    assert weeks.registry() == (1, 1, second)
    assert not ran(weeks.run("refresh")) & {"fetch_release", *SEARCH}

    # The new images are compared with the reference.
    weeks.run("monitor")
    found = weeks.metrics("monitor", "monitoring")
    log_line(f"monitor: {found}")
    assert "crossed" in found

    # A larger corpus. The run is killed while it trains, and started again.
    upload_scenes(tmp_path / "larger", train=600, val=VAL, test=TEST)
    weeks.kill("retrain", "train-embedding")
    assert weeks.registry() == (1, 1, second)
    states = weeks.run("retrain")
    assert {name for name, state in states.items() if state == "cached"} >= {
        "extract-features",
        "vectorize-captions",
    }
    assert ran(states) >= {"train_embedding", *SEARCH, "release", "promote_2"}
    assert weeks.is_accepted()
    embedded = weeks.metrics("embed-collection", "collection")
    assert (embedded["embedded"], embedded["kept"]) == (120, 0)  # by the new model
    versions, champion, third = weeks.registry()
    assert (versions, champion) == (2, 2)

    # Enough new images, but no better model: refused, and nothing is embedded.
    upload_scenes(tmp_path / "few", train=680, val=VAL, test=TEST)
    states = weeks.run("retrain")
    assert "train_embedding" in ran(states)
    assert not weeks.is_accepted()
    assert states["if-accepted"] == "canceled"
    assert weeks.registry() == (3, 2, third)
