"""The stage pretrain_sorter."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from bifocal.sorters import load_sorter
from components.pretrain_sorter.run import run
from components.pretrain_sorter.spec import PretrainSorterParams
from runtime.artifacts import hash_files

SECTION: dict[str, Any] = {
    "seed": 1,
    "sorter": {"name": "LSTMSorter", "hidden": 8, "layers": 1},
    "length": 5,
    "batch_size": 64,
    "learning_rate": 0.01,
    "halve_every": 2,
    "vectors_per_epoch": 640,
    "epochs": 2,
    "patience": 5,
    "tolerance": 0.01,
    "depths": [],
}


def params(**changes: Any) -> PretrainSorterParams:
    return PretrainSorterParams.model_validate(SECTION | changes)


def test_the_stage_writes_a_sorter_and_its_history(tmp_path: Path):
    figures = run(params(), sorter=tmp_path)
    history = pd.read_csv(tmp_path / "history.csv")
    assert len(history) == figures["epochs"] == 2
    assert history["held_out_l1"].min() == pytest.approx(figures["held_out_l1"])
    assert load_sorter(tmp_path)(torch.rand(4, 5)).shape == (4, 5)


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path):
    written = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        run(params(), sorter=tmp_path / name)
        written.append(hash_files(tmp_path / name))
    assert written[0] == written[1]


def test_the_stage_draws_the_figures_of_the_thesis(tmp_path: Path):
    figures = run(params(depths=[1, 2]), sorter=tmp_path)
    assert all((tmp_path / f"{name}.png").stat().st_size > 0 for name in ("l1", "behaviour", "depths"))
    errors = pd.read_csv(tmp_path / "l1.csv", index_col="sorter")["l1"]
    assert errors["LSTMSorter"] == pytest.approx(figures["held_out_l1"])
    assert errors["BifocalSorter"] == 0
    depths = pd.read_csv(tmp_path / "depths.csv")
    assert depths[["blocks", "epoch"]].to_numpy().tolist() == [[1, 1], [1, 2], [2, 1], [2, 2]]


def test_a_sorter_without_weights_is_only_written(tmp_path: Path):
    figures = run(params(sorter={"name": "BifocalSorter", "bandwidth": 0.5}), sorter=tmp_path)
    assert figures == {"held_out_l1": 0, "epochs": 0}
    assert not (tmp_path / "model.safetensors").exists()
    assert load_sorter(tmp_path).bandwidth == 0.5


def test_length_stands_beside_the_sorter_alone(tmp_path: Path):
    with pytest.raises(ValueError, match="length is given beside the sorter"):
        run(params(sorter={"name": "LSTMSorter", "length": 5}), sorter=tmp_path)
