"""Promotion in a registry with a real sqlite store, and ten promoters at once."""

import json
import os
import re
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

from bifocal.text import Vocabulary
from components.evaluate.evidence import RANKS, TRAINED_ON
from pipelines.__main__ import main
from pipelines.promotion.policy import Decision, summary
from pipelines.promotion.promote import promote, rollback
from runtime.mlflow import EVALUATION_DIR, get_version, promotion_lock, remove_lock

sys.path.insert(0, str(Path(__file__).parents[1]))
from synthetic import RULES, ranks

ROOT = Path(__file__).parents[3]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(uri)
    # Another test of this process may have left the experiment of its own store selected.
    mlflow.set_experiment("promotion")
    return uri


def graph(file: Path, inputs: Sequence[tuple[str, int, int]]) -> None:
    """The mean of the first input over its second axis."""
    values = [helper.make_tensor_value_info(name, kind, [None] * rank) for name, kind, rank in inputs]
    nodes = [
        helper.make_node("Cast", [inputs[0][0]], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["numbers", "axes"], ["embedding"], keepdims=0),
        # Every declared input is used, as in the real graphs.
        helper.make_node("Shape", [inputs[1][0]], ["unused"]),
    ]
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, None)
    made = helper.make_graph(nodes, "mean", values, [output], [axes])
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(file))


def register(folder: Path, quality: float, seed: int = 0) -> int:
    """A version with all its files; returns its number."""
    for name in ("onnx", "evidence"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    graph(folder / "onnx/text_encoder.onnx", [("values", TensorProto.INT64, 2), ("lengths", TensorProto.INT64, 1)])
    graph(folder / "onnx/image_encoder.onnx", [("features", TensorProto.FLOAT, 3), ("mask", TensorProto.BOOL, 2)])
    Vocabulary(["dog"]).save(folder / "onnx" / Vocabulary.FILE)
    pd.DataFrame({"branch": ["text_encoder", "backbone"], "difference": [1e-7, 2e-4]}).to_csv(
        folder / "onnx/parity.csv", index=False
    )
    ranks(quality, seed).to_parquet(folder / "evidence" / RANKS)
    pd.DataFrame({"content": ["image 1000"]}).to_parquet(folder / "evidence" / TRAINED_ON)
    client = mlflow.MlflowClient()
    with mlflow.start_run() as run:
        mlflow.log_artifacts(str(folder / "evidence"), EVALUATION_DIR)
    if not client.search_registered_models(f"name = '{RULES.model}'"):
        client.create_registered_model(RULES.model)
    version = client.create_model_version(RULES.model, (folder / "onnx").as_uri(), run.info.run_id)
    client.set_registered_model_alias(RULES.model, RULES.candidate, version.version)
    return int(version.version)


def at(alias: str) -> int | None:
    found = get_version(RULES.model, alias)
    return found.number if found else None


def decisions(number: int) -> tuple[dict[str, str], list[dict[str, Any]]]:
    client = mlflow.MlflowClient()
    version = client.get_model_version(RULES.model, str(number))
    files = client.list_artifacts(version.run_id, "promotion")
    texts = [Path(mlflow.artifacts.download_artifacts(run_id=version.run_id, artifact_path=f.path)) for f in files]
    return version.tags, [json.loads(path.read_text()) for path in texts]


def test_aliases_move_on_yes_stay_on_no_and_come_back(store: str, tmp_path: Path) -> None:
    first = register(tmp_path / "a", 0.3)
    assert promote(RULES).promoted
    assert (at(RULES.champion), at(RULES.previous)) == (first, None)
    second = register(tmp_path / "b", 0.9)
    assert promote(RULES).promoted
    assert (at(RULES.champion), at(RULES.previous)) == (second, first)
    third = register(tmp_path / "c", 0.5)
    made = promote(RULES)
    assert not made.promoted
    assert (at(RULES.champion), at(RULES.previous)) == (second, first)
    tags, (record,) = decisions(third)
    assert tags["promotion"] == "no"
    assert "must be above" in tags["promotion.reasons"]
    assert record["champion"] == str(second)
    assert record["figures"]["candidate.recall_sum"] == pytest.approx(summary(ranks(0.5), RULES)["recall_sum"])
    assert decisions(second)[0]["promotion"] == "yes"
    assert rollback(RULES) == first
    assert (at(RULES.champion), at(RULES.previous)) == (first, second)
    done = CliRunner().invoke(main, ["promote", "--rollback"], catch_exceptions=False)
    assert done.output.splitlines() == ["candidate: version 3", "champion: version 2", "previous: version 1"]


def test_the_champion_is_no_candidate_and_a_missing_one_is_said(store: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has the alias 'candidate': run register_model"):
        promote(RULES)
    register(tmp_path / "a", 0.3)
    promote(RULES)
    assert promote(RULES) == Decision(["version 1 is the champion already"])


def test_a_second_promoter_waits_and_then_says_who_is_in_the_way(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    me = rf"process {os.getpid()} on \S+"
    with (
        promotion_lock(RULES.model, timeout=0),
        pytest.raises(OSError, match=rf"another promotion is under way, of {me}\. .*--unlock"),
        promotion_lock(RULES.model, timeout=0.5),
    ):
        pass
    assert re.fullmatch(rf"waiting for the promotion of {me}, at most 0.5 s\n", capsys.readouterr().err)
    with promotion_lock(RULES.model, timeout=0):
        assert re.fullmatch(me, remove_lock(RULES.model))
        with pytest.raises(ValueError, match=r"there is no bifocal\.promotion-lock: nobody promotes"):
            remove_lock(RULES.model)
        with promotion_lock(RULES.model, timeout=0):
            pass
        mlflow.MlflowClient().create_registered_model(f"{RULES.model}.promotion-lock")


def test_a_server_that_is_none_is_said(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "localhost:5000")
    for work in (promote, rollback):
        with pytest.raises(OSError, match=r"MLflow at localhost:5000: .*doctor"):
            work(RULES)


PROMOTER = """
import os, sys, traceback
from runtime.mlflow import registry
from pipelines.promotion.policy import Rules
from pipelines.promotion.promote import promote
rules = Rules.model_validate_json(sys.argv[1])
registry.POLL_SECONDS = 0.001
children = []
for number in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        try:
            promote(rules.model_copy(update={"candidate": f"c{number}"}))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    children.append(child)
sys.exit(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children))
"""


def test_ten_promoters_at_once_leave_the_best(store: str, tmp_path: Path) -> None:
    promoters = 10
    qualities = [0.05 + 0.09 * number for number in range(promoters)]
    order = np.random.default_rng(5).permutation(promoters)
    client = mlflow.MlflowClient()
    numbers = {}
    for place, number in enumerate(order):
        numbers[number] = register(tmp_path / str(number), qualities[number], seed=1)
        client.set_registered_model_alias(RULES.model, f"c{place}", str(numbers[number]))
    command = [sys.executable, "-c", PROMOTER, RULES.model_dump_json(), str(promoters)]
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
    assert at(RULES.champion) == numbers[promoters - 1]
    for number in numbers.values():
        assert decisions(number)[0]["promotion"] in ("yes", "no")
    tags = decisions(numbers[promoters - 1])[0]
    beaten = tags["promotion.champion"]  # none where the best came first
    assert at(RULES.previous) == (None if beaten == "none" else int(beaten))
    assert not client.search_registered_models(f"name = '{RULES.model}.promotion-lock'")
