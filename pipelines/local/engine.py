"""Engine: runs one attempt of a step."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import click


@dataclass(frozen=True)
class Pod:
    """One attempt of a step, which reads ``inputs`` and writes below ``folder``; ``timeout`` is in seconds."""

    folder: Path
    inputs: Sequence[Path]
    image: str
    command: Sequence[str]
    environment: Mapping[str, str]
    timeout: float
    log: Path


class Exit(NamedTuple):
    """Exit code of a step, and whether it was killed after its timeout."""

    code: int
    late: bool = False


class Engine(Protocol):
    """Runs one step."""

    def image(self, image: str) -> str:
        """Return the image as it enters the cache key: with its content, as a digest has it on a cluster."""

    def run(self, pod: Pod) -> Exit:
        """Run the command until it ends or its time is up; append its output to the log."""

    def stop(self) -> None:
        """Kill the running steps."""


def tee(lines: Iterable[bytes], log: Path) -> None:
    """Append the output of a step to its log, and print it."""
    with log.open("ab") as file:
        for line in lines:
            file.write(line)
            file.flush()
            click.echo(line, nl=False)
