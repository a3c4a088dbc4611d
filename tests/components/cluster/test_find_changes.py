"""The step find_changes: when the flow retrain trains."""

from dataclasses import replace
from pathlib import Path

import mlflow
import pytest

from bifocal.datasets import Dataset
from components.cluster.find_changes import run
from components.cluster.steps import FindChangesParams
from runtime.artifacts import artifact_hash
from tests.components.cluster.versions import POLICY, decide, register
from tests.runtime.mlflow.kills import lose_run

PARAMS = FindChangesParams(
    seed=1, model=POLICY.model, alias=POLICY.candidate, promote=True, policy=POLICY
)


def trained_on(dataset: Dataset, new: int) -> Dataset:
    """Return a dataset with other content of the first ``new`` of its four training images."""
    hashes = [
        f"{row:064d}" if row < new else digest
        for row, digest in enumerate(dataset.images["sha256"])
    ]
    return replace(dataset, images=dataset.images.assign(sha256=hashes))


def test_the_first_version_is_trained(store: str, artifacts: Path) -> None:
    assert run(PARAMS, dataset=artifacts / "dataset") == {"changed": "true", "change": 1.0}


@pytest.mark.parametrize(
    ("new", "change", "changed"), [(0, 0.0, "false"), (1, 2 / 54, "false"), (4, 8 / 54, "true")]
)
def test_new_and_removed_images_count_relative_to_all_images_of_the_last_training(
    store: str,
    artifacts: Path,
    dataset: Dataset,
    tmp_path: Path,
    new: int,
    change: float,
    changed: str,
) -> None:
    number = register(tmp_path, trained_on(dataset, new), 0.1)
    mlflow.MlflowClient().set_model_version_tag(POLICY.model, str(number), "promotion", "no")
    assert run(PARAMS, dataset=artifacts / "dataset") == {"changed": changed, "change": change}


@pytest.mark.slow
def test_a_killed_run_goes_on_and_a_decided_one_does_not(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path
) -> None:
    number = register(tmp_path, dataset, 0.1)
    digest = artifact_hash(artifacts / "dataset")
    mlflow.MlflowClient().set_model_version_tag(POLICY.model, str(number), "hash.dataset", digest)
    assert run(PARAMS, dataset=artifacts / "dataset")["changed"] == "true"
    decide(artifacts, decide_only=True)
    assert run(PARAMS, dataset=artifacts / "dataset")["changed"] == "true"
    kept = PARAMS.model_copy(update={"promote": False})
    assert run(kept, dataset=artifacts / "dataset")["changed"] == "false"
    # Ten new images, less than the threshold, must not strand the accepted version.
    mlflow.MlflowClient().set_model_version_tag(
        POLICY.model, str(number), "hash.dataset", "another"
    )
    assert run(PARAMS, dataset=artifacts / "dataset")["changed"] == "true"
    decide(artifacts)
    assert run(PARAMS, dataset=artifacts / "dataset")["changed"] == "false"


def test_a_refused_version_is_decided_again_by_another_policy(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path
) -> None:
    register(tmp_path, dataset, 0.1)
    strict = POLICY.model_copy(update={"min_images": 60})
    assert not decide(artifacts, strict).accepted
    for changes, changed in (
        ({}, "false"),
        ({"retrain_change": 0.5}, "false"),
        ({"min_images": 40}, "true"),
    ):
        params = PARAMS.model_copy(update={"policy": strict.model_copy(update=changes)})
        assert run(params, dataset=artifacts / "dataset")["changed"] == changed
    assert decide(artifacts).accepted


def test_after_the_run_of_the_last_training_was_deleted_the_dataset_is_compared_as_a_whole(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path
) -> None:
    number, client = register(tmp_path, dataset, 0.1), mlflow.MlflowClient()
    client.set_model_version_tag(
        POLICY.model, str(number), "hash.dataset", artifact_hash(artifacts / "dataset")
    )
    client.set_model_version_tag(POLICY.model, str(number), "promotion", "no")
    lose_run(client.get_model_version(POLICY.model, str(number)).run_id)
    assert run(PARAMS, dataset=artifacts / "dataset") == {"changed": "false", "change": 0.0}
    client.set_model_version_tag(POLICY.model, str(number), "hash.dataset", "another")
    assert run(PARAMS, dataset=artifacts / "dataset") == {"changed": "true", "change": 1.0}
