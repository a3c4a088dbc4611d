"""Folders in which the marked code blocks of the documentation run."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import timm
import torch
from safetensors.torch import save_file

from bifocal.datasets.corpora import Scenes
from tests.bifocal.tiny_transformer import write_tiny_transformer
from tests.docs.blocks import ROOT

BIFOCAL = f"""#!/bin/sh
exec {sys.executable} -m bifocal "$@"
"""
"""The command of this checkout; the installed command may belong to another checkout."""
IMAGES = 40
BACKBONE = "tf_efficientnet_lite2"


def write_photos(folder: Path) -> None:
    """Write ``photos`` with captions.csv, random weights of the default's backbone, and ``weights``
    with a copy of them and a small sentence encoder.
    """
    (folder / "bin").mkdir()
    (folder / "bin" / "bifocal").write_text(BIFOCAL)
    (folder / "bin" / "bifocal").chmod(0o755)
    corpus = Scenes(train=IMAGES, val=0, test=0, size=96).read(folder / "drawn")
    (folder / "photos").mkdir()
    names = {
        image.image_id: f"{number:04}.jpg" for number, image in enumerate(corpus.images, start=1)
    }
    for image in corpus.images:
        assert image.path is not None
        (corpus.image_root / image.path).rename(folder / "photos" / names[image.image_id])
    rows = [(names[caption.image_id], caption.text) for caption in corpus.captions]
    pd.DataFrame(rows, columns=["image", "caption"]).to_csv(
        folder / "photos" / "captions.csv", index=False
    )
    torch.manual_seed(0)
    save_file(timm.create_model(BACKBONE).state_dict(), folder / f"{BACKBONE}.safetensors")
    encoder = write_tiny_transformer(
        ["a dog runs through the snow"], folder=folder / "weights" / "sentences"
    )
    (encoder / "modules.json").write_text(
        '[{"type": "sentence_transformers.models.Transformer", "path": ""}]'
    )
    shutil.copy(folder / f"{BACKBONE}.safetensors", folder / "weights")


def write_run(folder: Path) -> None:
    """Write ``photos``, and train the run ``runs/photos``."""
    write_photos(folder)
    run("bash", f"bifocal train photos --weights {BACKBONE}.safetensors\n", folder)


def write_clone(folder: Path) -> None:
    """Clone the last commit of this repository."""
    subprocess.run(["git", "clone", "--quiet", "--local", str(ROOT), str(folder)], check=True)
    (folder / ".venv").symlink_to((ROOT / ".venv").resolve())


WORLDS = {"photos": write_photos, "run": write_run, "clone": write_clone}
"""What prepares the folder of a world."""


def environment(variables: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return ``variables`` with the command and the library of ``folder``, else of this checkout,
    and no settings."""
    kept = {
        name: value
        for name, value in variables.items()
        if not name.startswith(("BIFOCAL_", "MLFLOW_"))
    }
    path = os.pathsep.join([str(folder / "bin"), str(ROOT / ".venv" / "bin"), variables["PATH"]])
    source = folder if (folder / "pipelines").is_dir() else ROOT
    return kept | {
        "PATH": path,
        "PYTHONPATH": str(source),
        "HF_HUB_OFFLINE": "1",
    }  # a hub changes the default encoder


def run(language: str, text: str, folder: Path) -> None:
    """Run a block of bash or Python in ``folder``.

    Raises:
        AssertionError: it fails; the message has its output.
    """
    command = (
        ["bash", "-euo", "pipefail", "-c", text] if language == "bash" else ["python", "-c", text]
    )
    variables = environment(os.environ, folder)
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
