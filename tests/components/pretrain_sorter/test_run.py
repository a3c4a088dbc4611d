"""The stage pretrain_sorter."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from bifocal.sorters import load_sorter
from components.pretrain_sorter.run import run
from components.pretrain_sorter.spec import COMPONENT, PretrainSorterParams
from runtime import parameters
from runtime.artifacts import hash_files
from runtime.parameters import ParameterError

TRAINING: dict[str, Any] = {
    "batch_size": 64,
    "learning_rate": 0.01,
    "schedule": {"name": "Step", "step_size": 2},
    "vectors_per_epoch": 640,
    "epochs": 2,
    "patience": 5,
    "tolerance": 0.01,
    "depths": [],
}
SECTION: dict[str, Any] = {
    "sorter": {"name": "PositionwiseLSTMSorter", "hidden": 8, "layers": 1},
    "length": 5,
    "training": TRAINING,
}


def validated(**changes: Any) -> PretrainSorterParams:
    params = parameters.validate({"seed": 1, "pretrain_sorter": SECTION | changes}, [COMPONENT])[
        "pretrain_sorter"
    ]
    assert isinstance(params, PretrainSorterParams)
    return params


def test_run_writes_a_sorter_and_its_history(tmp_path: Path) -> None:
    metrics = run(validated(), sorter=tmp_path)
    history = pd.read_csv(tmp_path / "history.csv")
    assert list(history.columns) == ["epoch", "loss", "learning_rate", "held_out_l1"]
    assert len(history) == metrics["epochs"] == 2
    assert history["held_out_l1"].min() == pytest.approx(metrics["held_out_l1"])
    assert load_sorter(tmp_path)(torch.rand(4, 5)).shape == (4, 5)


def test_run_writes_the_same_bytes_with_the_same_seed(tmp_path: Path) -> None:
    written = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        run(validated(), sorter=tmp_path / name)
        written.append(hash_files(tmp_path / name))
    assert written[0] == written[1]


def test_run_draws_the_figures_of_the_thesis(tmp_path: Path) -> None:
    metrics = run(validated(training=TRAINING | {"depths": [1, 2]}), sorter=tmp_path)
    assert all(
        (tmp_path / f"{name}.png").stat().st_size > 0 for name in ("l1", "behavior", "depths")
    )
    errors = pd.read_csv(tmp_path / "l1.csv", index_col="sorter")["l1"]
    assert errors["PositionwiseLSTMSorter"] == pytest.approx(metrics["held_out_l1"])
    assert errors["ExactRankSorter"] == 0
    depths = pd.read_csv(tmp_path / "depths.csv")
    assert depths[["blocks", "epoch"]].to_numpy().tolist() == [[1, 1], [1, 2], [2, 1], [2, 2]]


def test_sorter_without_weights_is_stored_without_training(tmp_path: Path) -> None:
    sorter = {"name": "ExactRankSorter", "bandwidth": 0.5}
    metrics = run(validated(sorter=sorter, training=None), sorter=tmp_path)
    assert metrics == {"held_out_l1": 0, "epochs": 0}
    assert not (tmp_path / "model.safetensors").exists()
    assert load_sorter(tmp_path).bandwidth == 0.5
    assert pd.read_csv(tmp_path / "history.csv").empty


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"sorter": "ExactRankSorter"},
            "ExactRankSorter has no weights to train: set training to null",
        ),
        (
            {"training": None},
            "training is null, but PositionwiseLSTMSorter has weights: set training",
        ),
        (
            {"sorter": {"name": "PositionwiseLSTMSorter", "length": 5}},
            r"sorter\.length: leave it out",
        ),
        ({"training": TRAINING | {"schedule": {"name": "Stepp"}}}, "did you mean 'Step'"),
        (
            {"training": TRAINING | {"schedule": {"name": "Step", "gama": 0.5}}},
            "did you mean 'gamma'",
        ),
    ],
)
def test_parameters_are_validated(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        validated(**changes)
