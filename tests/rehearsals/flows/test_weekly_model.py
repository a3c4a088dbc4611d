"""The page "A model every week", typed: a project, its first model, 60 more images, and the
service."""

import json
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

from bifocal.datasets.corpora import Scenes
from pipelines.commands import main
from tests.bifocal.serving.server import ROOT, Server
from tests.docs.blocks import blocks, commands
from tests.mlflow_server import free_port
from tests.pipelines.local.mixed_engine import MixedEngine

DEMO = FileNotFoundError("no network")
PAGE = "docs/weekly.md"
FOLDER = Path("runs/kubeflow/products")


def write_photos(folder: Path, count: int) -> None:
    """Write ``count`` drawn scenes with captions; a larger count begins with the images of a
    smaller one."""
    corpus = Scenes(seed=3, train=count, val=1, test=1, size=96).read(
        folder.parent / f"drawn-{count}"
    )
    names = {
        image.image_id: f"{number}.jpg"
        for number, image in enumerate(corpus.images)
        if image.split == "train"
    }
    folder.mkdir(exist_ok=True)
    for image in corpus.images:
        if image.image_id in names and not (folder / names[image.image_id]).exists():
            shutil.copy(corpus.image_root / str(image.path), folder / names[image.image_id])
    rows = [
        f'{names[row.image_id]},"{row.text}"' for row in corpus.captions if row.image_id in names
    ]
    (folder / "captions.csv").write_text("\n".join(["image,caption", *rows, ""]))


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
    monkeypatch.setattr(
        "pipelines.app.training.recipe._networks", lambda *arguments, **options: (None, DEMO)
    )
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    typed = [command for block in blocks(PAGE) for command in commands(block)]
    new, train, serve, retrain, refresh, rollback, *on_a_cluster = typed
    client = MlflowClient(mlflow_store)

    write_photos(tmp_path / "photos", 300)
    assert "wrote projects/products/promotion.yaml" in type_command(new)
    shown = type_command(train)
    assert decision()["promoted"], decision()["reasons"]
    report = FOLDER / "evaluate" / "report" / "index.html"
    assert f"Report: {report.resolve().as_uri()}" in shown
    assert "neither model" not in str(decision()["notes"])  # the project has no guard without boxes
    assert client.get_model_version_by_alias("products", "champion").version == 1

    write_photos(tmp_path / "photos", 360)
    shown = type_command(retrain)
    assert "train-embedding: complete" in shown
    champion: int = client.get_model_version_by_alias("products", "champion").version
    if decision()["promoted"]:
        assert champion == 2
    else:
        (reason, *_) = decision()["reasons"]
        assert "(" in reason  # what would accept it, or help
        assert champion == 1
    type_command(refresh)
    assert len(search(serve)) == 3

    if champion == 2:
        assert "champion: version 1" in type_command(rollback)
    assert [command.split("--project")[0].strip() for command in on_a_cluster[1:]] == [
        "python -m pipelines preflight",
        "python -m pipelines run --runner cluster",
        "python -m pipelines schedule apply",
    ]
