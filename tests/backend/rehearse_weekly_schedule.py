"""A weekly schedule on a corpus in S3 with every stage, up to the promotion: ``make rehearse``; it takes minutes."""

import json
import logging
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mlflow import MlflowClient

from bifocal.progress import log_line
from pipelines.local.engines import HostEngine
from pipelines.local.metadata import State
from pipelines.local.runner import LocalRun
from pipelines.promotion.policy import load as load_policy
from runtime import parameters
from tests.backend.test_weekly_schedule import CACHED_STAGES, CORPUS, cached
from tests.flickr8k_bucket import upload_scenes
from tests.pipelines.compiled import ROOT, SMALL_VALUES, compile_text

# A corpus of 40 scenes: the policy for it tests fewer images, and accepts code that is not committed.
POLICY = load_policy().model_copy(
    update={"min_images": 4, "floors": {"recall_sum": 1.0}, "allow_dirty": True, "max_near_duplicates": 1.0}
)


def weekly_run(folder: Path, store: str) -> tuple[dict[str, State], dict[str, Any], int]:
    """Run the schedule once; return the state of each task, the decision, and the number of versions."""
    values = parameters.merge(SMALL_VALUES, {"prepare_dataset": {"corpus": CORPUS}})
    with patch("pipelines.kubeflow.compile.load_policy", return_value=POLICY):
        text = compile_text(values, push=False)
    states = LocalRun(text, folder, HostEngine({"MLFLOW_TRACKING_URI": store}), {"repository": str(ROOT)}).execute()
    decision = json.loads((folder / "promote" / "promotion" / "decision.json").read_text())
    return states, decision, len(MlflowClient(store).search_model_versions(f"name='{POLICY.model}'"))


def test_a_version_for_each_change_of_the_corpus(s3: None, mlflow_store: str, tmp_path: Path) -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    upload_scenes(tmp_path / "scenes", train=40, val=12, test=12)
    states, first, versions = weekly_run(tmp_path / "cluster", mlflow_store)
    assert set(states.values()) == {State.COMPLETE}
    assert versions == 1

    states, _, versions = weekly_run(tmp_path / "cluster", mlflow_store)
    assert cached(states) == CACHED_STAGES
    assert versions == 1

    upload_scenes(tmp_path / "more", train=41, val=12, test=12)
    states, second, versions = weekly_run(tmp_path / "cluster", mlflow_store)
    assert cached(states) == {"pretrain-sorter"}
    assert versions == 2
    for week, decision in (("first", first), ("third", second)):
        log_line(f"{week} week: promoted {decision['promoted']}, {decision['reasons']}, {decision['metrics']}")
        assert decision["promoted"] or decision["reasons"]
