"""Two processes that train together, each with its rank in the environment."""

import os
import subprocess
import sys
from pathlib import Path

from tests.mlflow_server import free_port

START = """
import os, random, time
from datetime import timedelta
import torch
from bifocal.training import distributed, torchrun_world, waiting
waiting.STEP_LIMIT = timedelta(seconds=3)
waiting.SILENT_SECONDS, waiting.LOOK_SECONDS = 0.5, 0.1
rank = int(os.environ["RANK"])
"""
TRAIN = """
with torchrun_world() as (world, _):
    world.average([torch.ones(2)])
    late()
    world.average([torch.ones(2)])
"""


def pair(script: str) -> list[tuple[int, str]]:
    """Return exit code and stderr of two processes that run the script."""
    environment = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", START + script],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    return [(process.returncode, error) for process, error in zip(processes, errors, strict=True)]
