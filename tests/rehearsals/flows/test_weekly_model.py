"""The page "A model every week", typed: a first model, three weeks with new and removed images and
corrections, monitoring, clean-up, and the service."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner
from mlflow import MlflowClient

from bifocal.datasets import read_dataset
from bifocal.datasets.corpora import Scenes
from bifocal.datasets.corrections import add_correction
from bifocal.datasets.scenes.drawing import draw_scene
from bifocal.promotion.checks import Check, gain_check
from bifocal.promotion.common_images import common_images
from bifocal.promotion.comparison import join_queries
from bifocal.promotion.exported_model import ExportedModel
from pipelines.commands import main
from runtime.mlflow import get_version_number
from tests.bifocal.serving.server import ROOT, Server
from tests.docs.blocks import blocks, commands
from tests.mlflow_server import free_port
from tests.pipelines.local.mixed_engine import MixedEngine


def no_network(*arguments: object) -> None:
    raise FileNotFoundError("no network")


PAGE = "docs/weekly.md"
FOLDER = Path("runs/kubeflow/products")


def write_photos(folder: Path, numbers: range) -> dict[str, list[str]]:
    """Write drawn scenes of these numbers, in place of others; return all captions."""
    folder.mkdir(exist_ok=True)
    scenes, captions = Scenes(seed=3, train=500, val=1, test=1, size=96), dict[str, list[str]]()
    for number in numbers:
        scene, sentences = scenes.scene("train", number)
        captions[f"{number}.jpg"] = [sentence.text for sentence in sentences]
        if not (folder / f"{number}.jpg").exists():
            draw_scene(scene, 96).save(folder / f"{number}.jpg", quality=90)
    for file in folder.glob("*.jpg"):
        if file.name not in captions:
            file.unlink()
    rows = [f'{name},"{text}"' for name, texts in captions.items() for text in texts[:2]]
    (folder / "captions.csv").write_text("\n".join(["image,caption", *rows, ""]))
    return captions


def type_command(command: str) -> str:
    """Run a command of the page in this process, with its steps, and return its output."""
    # torch.onnx exports once per process.
    engine = partial(MixedEngine, processes=("export_onnx",))
    with patch("pipelines.local.engine.HostEngine", engine):
        result = CliRunner().invoke(main, shlex.split(command.removeprefix("python -m pipelines ")))
    assert result.exit_code == 0, f"{command}\n{result.output[-3000:]}\n{result.exception}"
    return result.output


def decision() -> dict[str, Any]:
    """Return the last decision of the step promote."""
    values: dict[str, Any] = json.loads(
        (FOLDER / "promote" / "promotion" / "decision.json").read_text()
    )
    return values


def split_test() -> set[str]:
    """Return the names of the test images of the last training."""
    images = read_dataset(FOLDER / "prepare-dataset" / "dataset").split("test").images
    return set(images["image_id"])


def gain_over_the_first(number: int, folder: Path) -> Check:
    """Return the gain of a version over version 1, on test images of the last training that neither
    learned, with a confidence of 95 %."""
    models = []
    for each in (number, 1):
        version, place = get_version_number("products", each), folder / str(each)
        evaluation = version.download_evaluation("", place / "run")
        models.append(ExportedModel.read(version.download_graphs(place / "model"), evaluation))
    tables = read_dataset(FOLDER / "prepare-dataset" / "dataset")
    common = common_images(tables, models, [None, None])
    queries = join_queries(*(model.rank(common.split, None) for model in models))
    return gain_check(queries, [1, 5, 10], 0.0, 0.05, seed=1)


def search(command: str) -> list[dict[str, Any]]:
    """Start the service of the page, and return what it finds."""
    server = Server(free_port(), Path("log.jsonl"))
    program = [sys.executable, "-m", *shlex.split(command), "--port", str(server.port)]
    server.process = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    server.log.touch()
    try:
        server.wait_until_ready()
        results: list[dict[str, Any]] = server.search(text="a red star on a beach", k=3)["results"]
        return results
    finally:
        server.process.kill()
        server.process.wait()


@pytest.mark.timeout(0)
def test_the_page_gives_a_champion_that_is_served(
    mlflow_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a network and weights, the backbone of the demo takes their place.
    monkeypatch.setattr("pipelines.app.training.recipe.small_at_hand", no_network)
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    typed = [command for block in blocks(PAGE) for command in commands(block)]
    typed = [command for command in typed if not command.startswith("bifocal correct")]
    new, train, serve, retrain, refresh, monitor, clean, status, *back = typed
    (refresh_previous, rollback), on_a_cluster = back[:2], back[2:]
    client = MlflowClient(mlflow_store)

    captions = write_photos(tmp_path / "photos", range(300))
    assert "wrote projects/products/promotion.yaml" in type_command(new)
    shown = type_command(train)
    assert decision()["promoted"], decision()["reasons"]
    report = FOLDER / "evaluate" / "report" / "index.html"
    assert f"Report: {report.resolve().as_uri()}" in shown
    assert "neither model" not in str(decision()["notes"])  # the project has no guard without boxes
    assert "version 1 of products is the champion now" in shown

    for week in range(1, 4):
        former = split_test()
        captions = write_photos(tmp_path / "photos", range(10 * week, 300 + 60 * week))
        for number in range(20):
            name, right = f"{10 * week + 15 * number}.jpg", number % 4 > 0
            text = captions[name if right else f"{10 * week + 15 * number + 1}.jpg"][2]
            add_correction(Path("projects/products/corrections.csv"), name, text, right=right)
        shown = type_command(retrain)
        assert "train-embedding: complete" in shown
        decided = decision()
        compared, kept = decided["test_set"]["images"], former & split_test()
        assert compared >= 0.9 * len(kept) >= 0.8 * len(former)
        assert ("is the champion now" in shown) == decided["accepted"]
        assert decided["accepted"] or f"not promoted: version {week + 1} of products" in shown
        shown = type_command(retrain)  # nothing is new
        assert "train-embedding" not in shown
        for command in (refresh, monitor, clean):
            type_command(command)
    champion: int = client.get_model_version_by_alias("products", "champion").version
    assert champion > 1
    gain = gain_over_the_first(champion, tmp_path / "compared")
    assert gain.bound is not None
    assert gain.bound > 0
    shown = type_command(status)
    answered = re.search(r"^corrections: the champion answers (\d+) of 60$", shown, re.MULTILINE)
    assert answered is not None, shown
    assert int(answered[1]) > 0
    assert re.search(r"The model answers \d+ of \d+ corrections\.", report.read_text("utf-8"))
    assert "experiment products" in shown
    assert len(search(serve)) == 3
    type_command(refresh_previous)
    assert "champion: version" in type_command(rollback)
    assert [command.split("--project")[0].strip() for command in on_a_cluster[1:]] == [
        "python -m pipelines preflight",
        "python -m pipelines run --runner cluster",
        "python -m pipelines schedule apply",
    ]
