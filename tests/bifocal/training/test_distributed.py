"""Training with two processes, each with a folder of its own as on two machines, equals training
with one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from bifocal.training.distributed import World

WORKER = Path(__file__).with_name("worker.py")


@pytest.fixture(scope="module")
def results(
    stores: Any, configuration: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """Results of one process, and of each process in a pair."""
    tables, _, _ = stores
    folder = tmp_path_factory.mktemp("distributed")
    for name in ("features", "text"):
        (folder / name).symlink_to(tables.image_root / name)
    tables.images.to_parquet(folder / "images.parquet")
    tables.captions.to_parquet(folder / "captions.parquet")
    without_dropout = {"text_encoder": {"name": "SRUEncoder", "layers": 1, "dropout": 0.0}}
    model = configuration["model"] | without_dropout
    (folder / "configuration.json").write_text(json.dumps(configuration | {"model": model}))
    paths = [str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    for command in ([sys.executable], torchrun):
        done = subprocess.run(
            [*command, str(WORKER), str(folder)], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    # Each run resumed once, and only rank 0 logged it.
    assert done.stderr.count("resuming at epoch 2, step 2") == 1
    assert done.stderr.count("SIGTERM: saved") == 1
    # Only rank 0 has checkpoints: the other gets the last and the best from it.
    assert (folder / "machine0" / "plain2" / "best.safetensors").is_file()
    assert not (folder / "machine1").exists()
    names = ("0of1", "0of2", "1of2")
    return {name: json.loads((folder / f"results{name}.json").read_text()) for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["plain", "micro", "continued"])
def test_two_processes_give_the_curve_of_one(results: dict[str, dict[str, Any]], way: str) -> None:
    (expected, weights), (first, first_weights), (second, second_weights) = (
        results[name][way] for name in ("0of1", "0of2", "1of2")
    )
    assert len(expected) == 2
    assert expected[1]["loss"] < expected[0]["loss"]
    assert first == second
    assert first_weights == second_weights  # bit for bit
    for row, other in zip(expected, first, strict=True):
        assert other == pytest.approx(row, rel=1e-4)
    for name, values in weights.items():
        torch.testing.assert_close(
            torch.tensor(first_weights[name]), torch.tensor(values), rtol=1e-3, atol=1e-4, msg=name
        )


@pytest.mark.slow
def test_sigterm_to_one_process_stops_both_and_both_resume(
    results: dict[str, dict[str, Any]],
) -> None:
    for name in ("0of1", "0of2", "1of2"):
        assert results[name]["stopped"][0] == 143
        assert results[name]["continued"] == results[name]["plain"]


def test_world_of_one_process_communicates_with_nobody() -> None:
    world, tensor = World(), torch.rand(3)
    assert world.gather(tensor) is tensor
    assert world.is_main
    assert world.broadcast_from_main(lambda: 5) == 5
    assert world.any_rank(True, torch.device("cpu"))
    assert not world.any_rank(False, torch.device("cpu"))
