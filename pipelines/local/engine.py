"""Engine: runs one attempt of a step in the folders of its pod."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import click


@dataclass(frozen=True)
class Pod:
    """One attempt of a step: the folders below ``folder`` are mounted below /; ``timeout`` is in seconds."""

    folder: Path
    image: str
    command: Sequence[str]
    environment: Mapping[str, str]
    timeout: float
    log: Path


class Exit(NamedTuple):
    """Exit code of a step; the reason is ``completed`` also after an error, ``deleted`` if the pod is gone."""

    code: int
    reason: Literal["completed", "deadline", "deleted"] = "completed"


class Engine(Protocol):
    """Runs one step."""

    def root(self, pod: Path) -> Path:
        """Return the path at which the step sees the folder ``pod``."""

    def image(self, image: str) -> str:
        """Return the image as it enters the cache key: with its content, as a digest has it on a cluster."""

    def own(self, pod: Path) -> None:
        """Let the user of the step write to the folders of the pod."""

    def run(self, pod: Pod) -> Exit:
        """Run the command until it ends or its time is up; append its output to the log."""

    def stop(self) -> None:
        """Kill the running steps."""


def give_folders(pod: Path, user: int) -> None:
    """Give the folders below ``pod`` to ``user``: the launcher, which makes them, runs as the user of the step."""
    for folder in (pod, *(path for path in pod.rglob("*") if path.is_dir())):
        os.chown(folder, user, user)


def tee(lines: Iterable[bytes], log: Path) -> None:
    """Append the output of a step to its log, and print it."""
    with log.open("ab") as file:
        for line in lines:
            file.write(line)
            file.flush()
            click.echo(line, nl=False)
