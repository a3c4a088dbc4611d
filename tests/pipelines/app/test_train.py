"""``bifocal train --encoder``: heads are kept if they are clearly better on the split val; the gain
is printed."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml
from click.testing import CliRunner

from bifocal.datasets import Dataset, read_dataset
from components.__main__ import main
from pipelines.app.run_folder import shipped_file
from pipelines.app.stages import stages_of_run
from pipelines.app.train import gain_over_small, gain_sentence, trained_ranks, untrained_ranks
from runtime import parameters
from runtime.artifacts import read_manifest
from tests.bifocal.contrastive import write_clip
from tests.bifocal.towers import write_immich
from tests.pipelines.app.conftest import Command


def test_a_gain_is_said_with_its_interval(tmp_path: Path) -> None:
    table = pd.DataFrame({"image_id": ["1", "2"]})
    split = Dataset(table, pd.concat([table, table]), pd.DataFrame(), tmp_path)
    assert gain_sentence(
        (600.0, 150.0), (405.5, 490.0), split, "trained heads", "the trained heads are kept"
    ) == (
        "Training helped: recall sum 600.0 with trained heads, 150.0 without training, "
        "difference +450.0 (95 % interval +405.5 to +490.0) on 4 held-out captions of 2 "
        "images; the trained heads are kept."
    )
    doubt = gain_sentence(
        (151.0, 150.0), (-0.5, 3.0), split, "trained heads", "the encoder is kept unchanged"
    )
    assert doubt.startswith(
        "Training did not clearly help: recall sum 151.0 with trained heads, 150.0 without"
    )
    assert doubt.endswith(
        "(95 % interval -0.5 to +3.0) on 4 held-out captions of 2 images; the encoder is kept "
        "unchanged."
    )


def test_a_model_is_compared_with_the_encoder_small(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    values = parameters.load(run / "params.yaml")
    # The run's own graphs in the place of small: equal models, but for rounding.
    monkeypatch.setattr("pipelines.app.train.encoder_folder", lambda *_: run / "artifacts" / "onnx")
    sentence = gain_over_small(run, values, None)
    assert sentence.startswith("Training did not clearly help: recall sum ")
    assert sentence.endswith(
        "the trained model is exported, and 'bifocal index' with the encoder small may find as "
        "much."
    )
    monkeypatch.setattr("pipelines.app.train.untrained_ranks", None)
    assert gain_over_small(run, values, None) == sentence
    table = pd.read_parquet(run / "artifacts" / "metrics" / "ranks.parquet")
    table[table["direction"] != "image_retrieval"].to_parquet(tmp_path / "ranks.parquet")
    with pytest.raises(ValueError, match=r"keep Retrieval in evaluate\.evaluators"):
        trained_ranks(tmp_path, read_dataset(run / "artifacts" / "dataset").split("test"))


@pytest.mark.slow
def test_heads_on_a_folder_and_the_same_by_the_recipe(
    photos: Path, command: Command, tmp_path: Path, mlflow_store: str
) -> None:
    weights, run = write_clip(tmp_path / "clip"), tmp_path / "run"
    arguments = (
        "train",
        photos,
        "--encoder",
        weights,
        "--run",
        run,
        "--set",
        "train_embedding.phases.0.epochs=1",
    )
    result = command(*arguments)
    assert result.exit_code == 0, result.output
    assert "recipes/own/clip.yaml, 60 photographs with captions, encoder " in result.output
    metrics = read_manifest(run / "artifacts" / "embedding")["metrics"]
    assert (metrics["blend"] > 0) == (metrics["blend_gain_low"] > 0)
    sentence = next(line for line in result.output.splitlines() if line.startswith("Training "))
    assert ("the trained heads are kept" in result.output) == (metrics["blend"] > 0)
    again = command(*arguments)
    assert sentence in again.output
    assert again.output.count("up to date") >= 9
    assert command("search", "a red star", "--run", run).exit_code == 0
    # The exported towers rank as torch's do in the evaluation.
    table = pd.read_parquet(run / "artifacts" / "metrics" / "ranks.parquet")
    dataset = read_dataset(run / "artifacts" / "dataset").split("test")
    found = untrained_ranks(write_immich(weights, tmp_path / "towers"), dataset)
    (tmp_path / "zero_shot").mkdir()
    below = table[table["direction"].str.startswith("zero_shot.")]
    below.assign(direction=below["direction"].str.removeprefix("zero_shot.")).to_parquet(
        tmp_path / "zero_shot" / "ranks.parquet"
    )
    for ours, expected in zip(found, trained_ranks(tmp_path / "zero_shot", dataset), strict=True):
        assert len(ours) == len(expected) > 0
        assert ((ours - expected).abs() <= 1).all()  # of nearly equal scores
        assert (ours == expected).double().mean() > 0.5
    refused = command(
        "train", photos, "--encoder", weights, "--budget", "1h", "--run", tmp_path / "other"
    )
    assert "--budget chooses the size of images, which --encoder fixes" in refused.output
    # A copy of the recipe with the paths of this machine gives the same, stage by stage, as 'make
    # repro' runs it.
    copy, again_folder = (
        yaml.safe_load(shipped_file("recipes/own/clip.yaml").read_text()),
        tmp_path / "again",
    )
    values = parameters.load(run / "params.yaml")
    copy["prepare_dataset"]["corpus"]["root"] = str(photos)
    for section in ("extract_features", "vectorize_captions"):
        copy[section] = values[section]
    copy["train_embedding"]["model"]["dim"] = values["train_embedding"]["model"]["dim"]
    copy["train_embedding"]["phases"][0]["epochs"] = 1
    (tmp_path / "copy.yaml").write_text(yaml.safe_dump(copy))
    source = ["--params", str(shipped_file("params.yaml")), "--recipe", str(tmp_path / "copy.yaml")]
    for stage in stages_of_run():
        repeated = CliRunner().invoke(main, [stage.name, *source, "--artifacts", str(again_folder)])
        assert repeated.exit_code == 0, repeated.output
    for file in ("embedding/model.safetensors", "metrics/metrics.json"):
        assert (again_folder / file).read_bytes() == (run / "artifacts" / file).read_bytes()
