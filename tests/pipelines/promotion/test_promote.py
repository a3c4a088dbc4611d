"""Promotion in a registry with a real sqlite store, by one process and by ten at once."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import onnx
import pandas as pd
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from bifocal.evaluation.rank_tables import RANKS, TRAINING_IMAGES
from bifocal.text import Vocabulary
from pipelines.__main__ import main
from pipelines.promotion.policy import Decision, summarize
from pipelines.promotion.promote import promote, rollback
from runtime.mlflow import EVALUATION_DIR, get_version
from tests.pipelines.compiled import ROOT
from tests.pipelines.synthetic_ranks import POLICY, ranks


@pytest.fixture
def store(mlflow_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(mlflow_store)
    # Another test of this process may have selected an experiment of another store.
    mlflow.set_experiment("promotion")
    return mlflow_store


def graph(file: Path, inputs: Sequence[tuple[str, int, int]]) -> None:
    """Write an ONNX graph: the mean of the first input over its second axis."""
    values = [helper.make_tensor_value_info(name, kind, [None] * rank) for name, kind, rank in inputs]
    nodes = [
        helper.make_node("Cast", [inputs[0][0]], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["numbers", "axes"], ["embedding"], keepdims=0),
        # Use every declared input, as the real graphs do.
        helper.make_node("Shape", [inputs[1][0]], ["unused"]),
    ]
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, None)
    mean = helper.make_graph(nodes, "mean", values, [output], [axes])
    onnx.save(helper.make_model(mean, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(file))


def register(folder: Path, recall: float, seed: int = 0) -> int:
    """Register a version with all its files; return its number."""
    for name in ("onnx", "evidence"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    graph(folder / "onnx/text_encoder.onnx", [("values", TensorProto.INT64, 2), ("lengths", TensorProto.INT64, 1)])
    graph(folder / "onnx/image_encoder.onnx", [("features", TensorProto.FLOAT, 3), ("mask", TensorProto.BOOL, 2)])
    Vocabulary(["dog"]).save(folder / "onnx" / Vocabulary.FILE)
    pd.DataFrame({"branch": ["text_encoder", "backbone"], "difference": [1e-7, 2e-4]}).to_csv(
        folder / "onnx/parity.csv", index=False
    )
    ranks(recall, seed).to_parquet(folder / "evidence" / RANKS)
    pd.DataFrame({"content": ["image 1000"]}).to_parquet(folder / "evidence" / TRAINING_IMAGES)
    client = mlflow.MlflowClient()
    with mlflow.start_run() as run:
        mlflow.log_artifacts(str(folder / "evidence"), EVALUATION_DIR)
    if not client.search_registered_models(f"name = '{POLICY.model}'"):
        client.create_registered_model(POLICY.model)
    version = client.create_model_version(POLICY.model, (folder / "onnx").as_uri(), run.info.run_id)
    client.set_registered_model_alias(POLICY.model, POLICY.candidate, version.version)
    return int(version.version)


def number_of(alias: str) -> int | None:
    version = get_version(POLICY.model, alias)
    return version.number if version else None


def decisions(number: int) -> tuple[dict[str, str], list[dict[str, Any]]]:
    client = mlflow.MlflowClient()
    version = client.get_model_version(POLICY.model, str(number))
    files = client.list_artifacts(version.run_id, "promotion")
    texts = [Path(mlflow.artifacts.download_artifacts(run_id=version.run_id, artifact_path=f.path)) for f in files]
    return version.tags, [json.loads(path.read_text()) for path in texts]


def test_promotion_moves_the_aliases_and_rollback_restores_them(store: str, tmp_path: Path) -> None:
    first = register(tmp_path / "a", 0.3)
    assert promote(POLICY).promoted
    assert (number_of(POLICY.champion), number_of(POLICY.previous)) == (first, None)
    second = register(tmp_path / "b", 0.9)
    assert promote(POLICY).promoted
    assert (number_of(POLICY.champion), number_of(POLICY.previous)) == (second, first)
    third = register(tmp_path / "c", 0.5)
    assert not promote(POLICY).promoted
    assert (number_of(POLICY.champion), number_of(POLICY.previous)) == (second, first)
    tags, (record,) = decisions(third)
    assert tags["promotion"] == "no"
    assert "must be above" in tags["promotion.reasons"]
    assert record["champion"] == str(second)
    assert record["metrics"]["candidate.recall_sum"] == pytest.approx(summarize(ranks(0.5), POLICY)["recall_sum"])
    assert decisions(second)[0]["promotion"] == "yes"
    assert rollback(POLICY) == first
    assert (number_of(POLICY.champion), number_of(POLICY.previous)) == (first, second)
    done = CliRunner().invoke(main, ["promote", "--rollback"], catch_exceptions=False)
    assert done.output.splitlines() == ["candidate: version 3", "champion: version 2", "previous: version 1"]


def test_promote_needs_a_candidate_that_is_not_the_champion(store: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has the alias 'candidate': run register_model"):
        promote(POLICY)
    register(tmp_path / "a", 0.3)
    promote(POLICY)
    assert promote(POLICY) == Decision(["version 1 already is the champion"])


def test_promote_and_rollback_explain_an_invalid_server_address(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "localhost:5000")
    for work in (promote, rollback):
        with pytest.raises(OSError, match=r"MLflow at localhost:5000: .*doctor"):
            work(POLICY)


def test_promote_prints_no_credentials_of_the_server() -> None:
    environment = {**os.environ, "MLFLOW_TRACKING_URI": "http://bifocal:S3cret@127.0.0.1:9", "PYTHONPATH": str(ROOT)}
    environment["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
    command = [sys.executable, "-m", "pipelines", "promote"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "MLflow at http://***@127.0.0.1:9" in done.stderr
    assert "S3cret" not in done.stdout + done.stderr


PROMOTERS = """
import os, sys, traceback
from runtime.mlflow import lock
from pipelines.promotion.policy import PromotionPolicy
from pipelines.promotion.promote import promote
policy = PromotionPolicy.model_validate_json(sys.argv[1])
lock.POLL_SECONDS = 0.01
children = []
for number in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        try:
            promote(policy.model_copy(update={"candidate": f"c{number}"}))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    children.append(child)
sys.exit(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children))
"""


def test_ten_concurrent_promotions_leave_the_best_version_as_champion(store: str, tmp_path: Path) -> None:
    promoters = 10
    recalls = [0.05 + 0.09 * number for number in range(promoters)]
    order = np.random.default_rng(5).permutation(promoters)
    client = mlflow.MlflowClient()
    numbers = {}
    for index, number in enumerate(order):
        numbers[number] = register(tmp_path / str(number), recalls[number], seed=1)
        client.set_registered_model_alias(POLICY.model, f"c{index}", str(numbers[number]))
    command = [sys.executable, "-c", PROMOTERS, POLICY.model_dump_json(), str(promoters)]
    done = subprocess.run(
        command,
        env={
            "MLFLOW_TRACKING_URI": store,
            "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert number_of(POLICY.champion) == numbers[promoters - 1]
    for number in numbers.values():
        assert decisions(number)[0]["promotion"] in ("yes", "no")
    tags = decisions(numbers[promoters - 1])[0]
    former = tags["promotion.champion"]  # "none" if the best version was promoted first
    assert number_of(POLICY.previous) == (None if former == "none" else int(former))
