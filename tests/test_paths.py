"""The central paths stay short: files whose functions run, and moves between them, from a command
to its work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bifocal.backbones.networks import small_networks
from pipelines.app.demo import unpack

ROOT = Path(__file__).parents[1]
SCENES = [
    f"prepare_dataset.corpus.{key}={value}"
    for key, value in {"train": 20, "val": 2, "test": 2}.items()
]


def run(folder: Path, *command: str) -> str:
    """Return the output of a module in a process of its own, with an MLflow store in ``folder``."""
    environment = os.environ | {
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset, the photographs of which it consists with captions, and a run."""
    folder = tmp_path_factory.mktemp("paths")
    settings = [word for setting in SCENES for word in ("--set", setting)]
    run(folder, "components", "prepare_dataset", "--artifacts", str(folder), *settings)
    photos = sorted(
        path for path in (folder / "dataset").rglob("*") if path.suffix in (".jpg", ".png")
    )
    (folder / "photos").mkdir()
    for photo in photos:
        (folder / "photos" / photo.name).write_bytes(photo.read_bytes())
    rows = [f"{photo.name},a drawing of scene {number}\n" for number, photo in enumerate(photos)]
    (folder / "photos" / "captions.csv").write_text("image,caption\n" + "".join(rows))
    unpack(folder / "run")
    small_networks(offline=True)  # the first call fills the user's cache
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "inputs", "files", "moves"),
    [("stage", ".", 26, 110), ("query", "run", 15, 45), ("train", "photos", 32, 90)],
)
def test_a_central_path_enters_few_files(
    path: str, inputs: str, files: int, moves: int, folder: Path
) -> None:
    output = run(folder, "tests.path_counter", path, str(folder / inputs))
    found = json.loads(output[output.index("{\n") :])
    assert found["reached"]
    assert len(found["files"]) <= files, "\n".join(found["files"])
    assert found["moves"] <= moves
