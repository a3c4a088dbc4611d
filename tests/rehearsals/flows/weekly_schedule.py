"""A weekly schedule on a corpus in S3 with every stage, up to the promotion:
``make rehearse-schedule``, minutes."""

import json
import logging
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3
from mlflow import MlflowClient
from safetensors.torch import save_file

from bifocal.features.extractors import Grid
from bifocal.progress import log_line
from pipelines.local.runner import LocalRun
from pipelines.local.task import TaskState
from pipelines.policies import load_promotion
from runtime import parameters
from tests.flickr8k_bucket import upload_scenes
from tests.pipelines.compiled import ROOT, SMALL_VALUES, compile_text
from tests.pipelines.local.mixed_engine import MixedEngine
from tests.rehearsals.flows.corpus import CORPUS, cached

# A corpus of 40 scenes: the policy for it tests fewer images, and accepts code that is not
# committed.
POLICY = load_promotion().model_copy(
    update={
        "min_images": 4,
        "floors": {"recall_sum": 1.0},
        "allow_dirty": True,
        "max_near_duplicates": 1.0,
    }
)

WEIGHTS = "backbone.safetensors"
CHANGES = {
    "prepare_dataset": {"corpus": CORPUS},
    "extract_features": {"weights": {"name": "FromFile", "path": f"s3://bucket/{WEIGHTS}"}},
}


def upload_weights(folder: Path) -> None:
    """Upload random weights of the extractor's network: the corpus has no phrases to train it
    on."""
    arguments = {
        name: value
        for name, value in SMALL_VALUES["extract_features"]["extractor"].items()
        if name != "name"
    }
    save_file(Grid(**arguments).backbone.network.state_dict(), folder / WEIGHTS)
    boto3.client("s3").upload_file(str(folder / WEIGHTS), "bucket", WEIGHTS)


def weekly_run(folder: Path, store: str) -> tuple[dict[str, TaskState], dict[str, Any], int]:
    """Run the schedule once; return the state of each task, the decision, and the number of
    versions."""
    with patch("pipelines.kubeflow.flows.load_promotion", return_value=POLICY):
        text = compile_text(parameters.merge(SMALL_VALUES, CHANGES), push=False)
    # torch.onnx exports once per process.
    engine = MixedEngine({"MLFLOW_TRACKING_URI": store}, processes=("export_onnx",))
    states = LocalRun(text, folder, engine, {"repository": str(ROOT)}).execute()
    decision = json.loads((folder / "promote" / "promotion" / "decision.json").read_text())
    return (
        states,
        decision,
        len(MlflowClient(store).search_model_versions(f"name='{POLICY.model}'")),
    )


def test_a_version_for_each_change_of_the_corpus(
    s3: None, mlflow_store: str, tmp_path: Path
) -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    upload_weights(tmp_path)
    upload_scenes(tmp_path / "scenes", train=40, val=12, test=12)
    states, first, versions = weekly_run(tmp_path / "cluster", mlflow_store)
    assert set(states.values()) == {TaskState.COMPLETE}
    assert versions == 1

    states, _, versions = weekly_run(tmp_path / "cluster", mlflow_store)
    assert set(states) - cached(states) == {
        "fingerprint",
        "register-model",
        "release",
        "promote",
        "notify",
    }
    assert versions == 1

    upload_scenes(tmp_path / "more", train=41, val=12, test=12)
    states, second, versions = weekly_run(tmp_path / "cluster", mlflow_store)
    assert cached(states) == {"pretrain-sorter"}
    assert versions == 2
    for week, decision in (("first", first), ("third", second)):
        log_line(
            f"{week} week: promoted {decision['promoted']}, {decision['reasons']}, "
            f"{decision['metrics']}"
        )
        assert decision["promoted"] or decision["reasons"]
