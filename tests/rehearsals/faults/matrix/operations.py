"""Operations that change files: how to run them, and the check that nothing is lost."""

from collections.abc import Collection as Container
from importlib import import_module
from pathlib import Path
from typing import Protocol


class Operation(Protocol):
    """A command on the files in a folder, which always has the same path."""

    def prepare(self, folder: Path) -> None:
        """Write the state before the command."""

    def run(self, folder: Path, number: int) -> None:
        """Run the command; commands of two numbers may run at once."""

    def check(self, folder: Path, acknowledged: Container[int]) -> None:
        """Run the next command: the state is the old one or the new one, and the new one for
        acknowledged commands."""


PLACES = {
    "commit of two artifacts": "stage:Commit",
    "`bifocal delete`": "collection:Delete",
    "`DELETE /api/v1/item`": "stage:DeleteByService",
    "`bifocal index`": "collection:Add",
    "`promote --rollback`": "registry:Rollback",
    "`pipelines release`": "registry:AddRelease",
    "training with checkpoints": "training:Train",
}
"""Module and class of each operation."""


def load(name: str) -> Operation:
    """Return an operation; only its own packages are imported."""
    module, _, of_class = PLACES[name].partition(":")
    operation: Operation = getattr(
        import_module(f"tests.rehearsals.faults.matrix.{module}"), of_class
    )()
    return operation
