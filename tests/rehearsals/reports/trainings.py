"""Trainings: captions that cannot be trained on, no git, and stages that are repeated."""

import shutil
from typing import Any

from runtime.artifacts import hash_files
from tests.rehearsals.reports.world import World, reported


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
