"""``bifocal train --encoder``: heads are kept if they are clearly better on the split val; the gain
is printed."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from bifocal.evaluation.retrieval.baselines import gain_sentence
from components.__main__ import main
from pipelines.app.run_folder import shipped_file
from pipelines.app.stages import stages_of_run
from runtime import parameters
from tests.bifocal.contrastive import write_clip
from tests.pipelines.app.conftest import Command

GAIN = {"trained": 600.0, "untrained": 150.0, "gain": 450.0, "images": 2.0, "captions": 4.0}


def test_a_gain_is_said_with_its_interval() -> None:
    assert gain_sentence({**GAIN, "low": 405.5, "high": 490.0}) == (
        "Training helped: recall sum 600.0 with the trained model, 150.0 without training, "
        "difference +450.0 (95 % interval +405.5 to +490.0) on 4 held-out captions of 2 images."
    )
    doubt = gain_sentence({**GAIN, "low": -0.5, "high": 3.0})
    assert doubt.startswith("Training did not clearly help: recall sum 600.0 with the trained")


@pytest.mark.slow
@pytest.mark.parametrize("settings", [(), ("seed=2",)])
def test_a_training_says_whether_it_helped(
    settings: tuple[str, ...],
    photos: Path,
    recipe: Path,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With each option: by small where it is at hand, and else why it is not known."""
    run = tmp_path / "run"
    options = [word for setting in settings for word in ("--set", setting)]
    arguments = ("train", photos, "--run", run, "--recipe", recipe, *options)
    assert (
        "Whether the training helped is not known: the report says why"
        in command(*arguments).output
    )
    assert "No row without training: " in (run / "artifacts/report/index.html").read_text()
    # The run's own graphs in the place of small: equal models, but for rounding.
    monkeypatch.setattr(
        "bifocal.evaluation.retrieval.baselines.small_networks", lambda offline: None
    )
    monkeypatch.setattr(
        "bifocal.export.class_sentences.small_encoders", lambda _: run / "artifacts" / "onnx"
    )
    again = command(*arguments, "--set", "evaluate.bootstrap_resamples=200")
    assert "Training did not clearly help: recall sum " in again.output, again.output


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
    sentence = next(line for line in result.output.splitlines() if line.startswith("Training "))
    again = command(*arguments)
    assert sentence in again.output
    assert again.output.count("up to date") >= 9
    assert command("search", "a red star", "--run", run).exit_code == 0
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
