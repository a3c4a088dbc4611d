"""``bifocal train --encoder``: heads are kept if they are clearly better on held-out captions, else the model."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from bifocal.datasets import read_dataset
from pipelines.app.training.contrastive import MODEL, compare, untrained_ranks
from tests.bifocal.contrastive import write_clip
from tests.bifocal.towers import write_immich
from tests.pipelines.app.conftest import Command


def ranks(trained: list[int], untrained: list[int]) -> pd.DataFrame:
    """Return ranks of both models, in both directions, one query per image."""
    tables = []
    for prefix, values in (("", trained), ("zero_shot.", untrained)):
        for direction in ("caption_retrieval", "image_retrieval"):
            ids = [str(number) for number in range(len(values))]
            columns = {"query": ids, "image_id": ids, "content": ids, "protocol": "p", "rank": np.array(values, float)}
            tables.append(pd.DataFrame({"direction": prefix + direction, **columns}))
    return pd.concat(tables, ignore_index=True)


def test_a_clear_gain_is_said_with_its_interval() -> None:
    found = compare(ranks([0] * 40, [20] * 30 + [0] * 10), seed=0)
    assert found["helped"]
    # Each K of both directions: 100 % with the heads, 25 % without.
    numbers = "recall sum 600.0 with trained heads, 150.0 without training, difference +450.0 (95 % interval +"
    assert found["sentence"].startswith(f"Training helped: {numbers}")
    assert found["sentence"].endswith("on 40 held-out captions of 40 images; the trained heads are kept.")


def test_a_new_model_is_exported_in_both_cases() -> None:
    better = compare(ranks([0] * 40, [20] * 40), 0, MODEL)["sentence"]
    assert better.startswith("Training helped: recall sum 600.0 with the trained model, 0.0 without training")
    assert better.endswith("; the trained model is exported.")
    worse = compare(ranks([20] * 40, [0] * 40), 0, MODEL)["sentence"]
    assert worse.endswith("is exported, and 'bifocal index' with the encoder small may find as much.")


@pytest.mark.parametrize("trained", [[0, 20] * 20, [20, 0] * 20, [20] * 40])
def test_no_clear_gain_keeps_the_encoder(trained: list[int]) -> None:
    found = compare(ranks(trained, [0, 20] * 20), seed=0)
    assert not found["helped"]
    assert found["sentence"].startswith("Training did not clearly help: recall sum")
    assert found["sentence"].endswith("the encoder is kept unchanged.")


def test_without_ranks_of_the_encoder_nothing_is_said() -> None:
    table = ranks([0], [0])
    with pytest.raises(ValueError, match=r"keep Baselines in evaluate\.evaluators"):
        compare(table[~table["direction"].str.startswith("zero_shot")], seed=0)


@pytest.mark.slow
def test_heads_on_a_folder(photos: Path, command: Command, tmp_path: Path) -> None:
    weights, run = write_clip(tmp_path / "clip"), tmp_path / "run"
    arguments = ("train", photos, "--encoder", weights, "--run", run, "--set", "train_embedding.phases.0.epochs=1")
    result = command(*arguments)
    assert result.exit_code == 0, result.output
    known = json.loads((run / "zero_shot.json").read_text())
    assert known["sentence"] in result.output
    phases = yaml.safe_load((run / "params.yaml").read_text())["train_embedding"]["phases"]
    assert len(phases) == known["helped"]
    again = command(*arguments)
    assert known["sentence"] in again.output
    assert again.output.count("up to date") >= 9
    assert command("search", "a red star", "--run", run).exit_code == 0
    # The exported towers rank as torch's do in the evaluation.
    table, dataset = pd.read_parquet(run / "artifacts" / "metrics" / "ranks.parquet"), run / "artifacts" / "dataset"
    found = untrained_ranks(write_immich(weights, tmp_path / "towers"), read_dataset(dataset).split("test"), table)
    expected = table[table["direction"].str.startswith("zero_shot.")]
    assert len(found) == len(expected) > 0
    pairs = found.merge(expected, on=["direction", "query", "image_id", "content", "protocol"], validate="one_to_one")
    assert len(pairs) == len(found)
    assert (abs(pairs["rank_x"] - pairs["rank_y"]) <= 1).all()  # of nearly equal scores
    assert (pairs["rank_x"] == pairs["rank_y"]).mean() > 0.8
    refused = command("train", photos, "--encoder", weights, "--budget", "1h", "--run", tmp_path / "other")
    assert "--budget chooses the size of images, which --encoder fixes" in refused.output
