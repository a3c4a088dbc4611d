"""Trainings: the owner of a run folder, data sets that cannot be trained on, and stages that are
repeated."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runtime.artifacts import hash_files
from tests.rehearsals.reports.world import CHECKOUT, World, caption, photo, reported


@reported(
    "D1", "train: another folder of the same name", "own, beside immich#18933", "holds a model of "
)
def second_training(world: World) -> Any:
    shutil.copytree(world.shared.training, world.folder, dirs_exist_ok=True)
    world.photos("other/photos", 60)
    world.table("other/photos", count=60)
    output = world.train("other/photos")
    return (
        output if "name another run folder with --run" in output else "the first model is replaced"
    )


@reported(
    "D1",
    "train: the run of 'bifocal index' as run folder",
    "own",
    "name another run folder with --run",
)
def run_of_an_index(world: World) -> Any:
    world.photos("photos")
    world.table("photos")
    world.index("photos")
    return world.train("photos", "--run", "runs/photos-index")


@reported(
    "D1", "unseen: v1.0 and v1.1, a link to a folder, a trailing slash", "own", [True, True, True]
)
def versions(world: World) -> Any:
    world.photos("v1.0")
    world.photos("v1.1")
    seen = ["12 new" in world.index(name) for name in ("v1.0", "v1.1")]
    (world.folder / "link").symlink_to("v1.0")
    return [
        *seen,
        "0 new, 0 changed, 0 removed" in world.index("link/", "--folder", "runs/v1.0-index"),
    ]


def refused(
    world: World, split: Callable[[int], str], image: Callable[[int], int] = lambda n: n
) -> list[bool]:
    """Train and inspect 24 photographs; return whether both refuse them, and no feature was
    extracted."""
    for number in range(24):
        world.write(f"photos/p{number:02}.jpg", photo(image(number)))
    columns = "image,caption,split" if split(0) else "image,caption"
    rows = [f"p{n:02}.jpg,{caption(n)}" + (f",{split(n)}" if split(0) else "") for n in range(24)]
    world.write("photos/captions.csv", "\n".join([columns, *rows]))
    output, inspected = world.train("photos"), world.bifocal("inspect", "photos")
    is_early = not (world.folder / "runs/photos/artifacts/features").exists()
    return [
        "cannot be trained on" in output,
        "[exit 1]" in inspected and "a split without images" in inspected,
        is_early,
    ]


@reported("D16", "all rows in test", "own", [True] * 3)
def all_test(world: World) -> Any:
    return refused(world, lambda number: "test")


@reported("D16", "bursts: near-duplicates of one, and of two motifs", "own", [[True] * 3] * 2)
def bursts(world: World) -> Any:
    worlds = [World(world.folder / name, world.shared) for name in ("one", "two")]
    return [
        refused(inner, lambda _: "", lambda n, count=count: n % count)
        for count, inner in enumerate(worlds, start=1)
    ]


@reported("D16", "unseen: no val; no test; splits of unknown names", "own", [True] * 3)
def missing_splits(world: World) -> Any:
    rules = (
        lambda n: "test" if n % 2 else "train",
        lambda n: "val" if n % 2 else "train",
        lambda n: f"fold {n % 3}",
    )
    worlds = [World(world.folder / f"{number}", world.shared) for number in range(3)]
    return [refused(inner, rule)[2] for inner, rule in zip(worlds, rules, strict=True)]


@reported("D16", "captions of emoji, each once: before the features", "own", False)
def emoji(world: World) -> Any:
    world.photos("photos", 24)
    world.write(
        "photos/captions.csv",
        "\n".join(["image,caption", *(f"p{n:02}.jpg,{chr(0x1F400 + n)}" for n in range(24))]),
    )
    output = world.train("photos")
    return "Traceback" in output or (
        "error" in output and (world.folder / "runs/photos/artifacts/features").exists()
    )


@reported("D14", "the first stage of train: Flickr8k of Kaggle", "OpenAI-CLIP#2", [12, 12])
def kaggle(world: World) -> Any:
    world.photos("photos/Images")
    world.table("photos", file="captions.txt")
    tables = world.prepare("ImageFolder", world.folder / "photos")
    return [len(tables[name]) for name in ("images", "captions")]


@reported(
    "M8", "train without git", "DeepFilterNet#676, pytorch/pytorch#3379", "images can be searched"
)
def train_without_git(world: World) -> Any:
    shutil.copytree(world.shared.training / "photos", world.folder / "photos")
    return world.train("photos", PATH=str(world.folder))


@reported("M9", "a stage that runs again writes the same bytes", "calkit#502, vscode-dvc#4241", {})
def same_bytes(world: World) -> Any:
    artifacts = world.folder / "artifacts"
    shutil.copytree(world.shared.training / "runs/photos/artifacts", artifacts)
    parameters, changed = world.shared.training / "runs/photos/params.yaml", {}
    for stage, output in {
        "embed_collection": "collection",
        "build_index": "index",
        "evaluate": "metrics",
    }.items():
        before = []
        for number in range(2):
            shutil.rmtree(artifacts / output)
            text = world.stage(stage, "--params", parameters, BIFOCAL_GIT_COMMIT=str(number) * 40)
            assert (artifacts / output).is_dir(), text
            before.append(hash_files(artifacts / output, without=()))
        if before[0] != before[1]:
            changed[stage] = sorted(
                name for name in before[0] if before[0][name] != before[1].get(name)
            )
    return changed


@reported(
    "M20",
    "a killed training goes on with other epochs: the loss of its checkpoint is said",
    "SimpleTuner#163, vortex#70",
    "a killed run is discarded, because this run differs: ",
)
def other_epochs(world: World) -> Any:
    artifacts = world.folder / "artifacts"
    shutil.copytree(world.shared.training / "runs/photos/artifacts", artifacts)
    shutil.rmtree(artifacts / "embedding")
    arguments = ["--params", world.shared.training / "runs/photos/params.yaml", "--set"]
    command = [
        sys.executable,
        "-m",
        "components",
        "train_embedding",
        *arguments,
        "train_embedding.phases.0.epochs=4000",
    ]
    variables = {**os.environ, **world.tracking(), "PYTHONPATH": str(CHECKOUT)}
    process = subprocess.Popen(
        command, cwd=world.folder, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 120
    while (
        not any(Path(artifacts).glob("embedding.partial/**/*.safetensors"))
        and process.poll() is None
    ):
        assert time.monotonic() < deadline, "no checkpoint in two minutes"
        time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=120)
    assert b"start again to resume" in log, log[-2000:].decode()
    return world.stage("train_embedding", *arguments, "train_embedding.phases.0.epochs=1")
