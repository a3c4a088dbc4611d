"""Pods of a TrainJob as processes of this machine, each with its own disk.

They get the variables that the torch plugin of Kubeflow's Trainer sets (trainer
``pkg/runtime/framework/plugins/torch/torch.go:141-165``), and a failed one starts again on an empty
disk, as by a Job. The local backends of Kubeflow's SDK do not serve: ``LocalProcessBackend`` runs
one node from a Python function, and ``ContainerBackend`` starts its own ``torchrun`` command
without these variables.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.components.cluster.trainer import end

ROOT = Path(__file__).parents[3]
BACKOFF_LIMIT = 6


@dataclass
class Pods:
    """Runs the pods of a job; an ``on_poll`` of ``Cluster``.

    Args:
        folder: has a folder for each pod.
        kill: returns the rank of a node to kill now by SIGKILL, or None.

    Attributes:
        restarts: number of pods that were started again.
    """

    folder: Path
    kill: Callable[[], int | None]
    restarts: int = 0
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    address: dict[str, str] = field(default_factory=dict)

    def __call__(self, job: dict[str, Any]) -> None:
        nodes = range(job["spec"]["trainer"]["numNodes"])
        for rank in nodes:
            if rank not in self.running:
                self.start(rank, job)
            elif self.running[rank].poll() not in (None, 0):
                if self.restarts == BACKOFF_LIMIT:
                    self.stop()
                    return end(job, "Failed")
                self.restarts += 1
                self.start(rank, job)
        victim = self.kill()
        if victim is not None:
            kill_pod(self.running[victim])
        if all(self.running[rank].poll() == 0 for rank in nodes):
            end(job, "Complete")
        return None

    def start(self, rank: int, job: dict[str, Any]) -> None:
        trainer = job["spec"]["trainer"]
        if not self.address:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            self.address = {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(port)}
        disk = self.folder / f"pod-{rank}-{self.restarts}"
        disk.mkdir(parents=True)
        environment = {
            **os.environ,
            **{entry["name"]: entry["value"] for entry in trainer["env"]},
            **self.address,
            "PET_NNODES": str(trainer["numNodes"]),
            "PET_NPROC_PER_NODE": trainer["resourcesPerNode"]["limits"]["cpu"],
            "PET_NODE_RANK": str(rank),
            "TMPDIR": str(disk),
            "PYTHONUNBUFFERED": "1",
        }
        with (disk / "log.txt").open("wb") as log:
            self.running[rank] = subprocess.Popen(
                [sys.executable, *trainer["command"][1:]],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self) -> None:
        """Kill all pods."""
        for process in self.running.values():
            if process.poll() is None:
                kill_pod(process)


def kill_pod(process: subprocess.Popen[bytes]) -> None:
    """Kill a pod with all its processes: torchrun starts each training in a session of its own."""
    pod = psutil.Process(process.pid)
    for member in [pod, *pod.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait()
