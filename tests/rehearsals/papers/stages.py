"""Stages of a recipe by the command line, each in a folder that all recipes with equal parameters
and inputs share."""

import fcntl
import hashlib
import json
import os
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import yaml

from components.__main__ import main
from components.catalog import configurable_components, pipeline_components
from runtime import parameters
from runtime.artifacts import MANIFEST
from runtime.identity import source_hash
from tests.rehearsals.papers.data import strings_of
from tests.rehearsals.papers.gradients import recorded_gradients

ROOT = Path(__file__).parents[3]
CHECKOUT = "checkout"
"""Working directory of the commands below the folder of the rehearsal: recipes find their data at
``../data``."""
SECONDS, GRADIENTS = "seconds", "gradients.json"


class Run:
    """One recipe with its settings.

    Args:
        recipe: path below ``recipes/``, without suffix.
        settings: values of ``--set``, by their keys.
        home: folder of the rehearsal.
    """

    def __init__(self, recipe: str, settings: Mapping[str, Any], home: Path) -> None:
        self.home, self.name = home, recipe
        self.file = ROOT / "recipes" / f"{recipe}.yaml"
        self.settings = [f"{key}={_as_yaml(value)}" for key, value in settings.items()]
        self.values = parameters.load(ROOT / "params.yaml", [self.file], self.settings)
        self.folders: dict[str, Path] = {}

    def run(self, before: str | None = None) -> None:
        """Run the stages of the recipe's pipeline, and link their artifacts as
        ``make repro RECIPE=...`` does.

        Args:
            before: stage at which to stop; None for all stages.
        """
        linked = self.home / CHECKOUT / "runs" / self.name / "artifacts"
        linked.mkdir(parents=True, exist_ok=True)
        for component in pipeline_components(self.values["pipeline"], self.values):
            if component.name == before:
                return
            inputs = {
                artifact: self.folders[artifact] for artifact in component.used_inputs(self.values)
            }
            folder = self._folder(component.name, inputs)
            with _locked(folder):
                if not (folder / component.outputs[-1] / MANIFEST).is_file():
                    self._start(component.name, folder, inputs)
            for artifact in component.outputs:
                self.folders[artifact] = folder / artifact
                _link(linked / artifact, folder / artifact)

    def seconds(self) -> float:
        """Return the time of one core that the stages took, in whichever recipe ran them first."""
        return sum(
            float((folder / SECONDS).read_text())
            for folder in {path.parent for path in self.folders.values()}
        )

    def _folder(self, stage: str, inputs: Mapping[str, Path]) -> Path:
        code = source_hash(configurable_components()[stage])
        section = self.values[stage]
        files = [
            path.stat().st_mtime_ns for name in strings_of(section) if (path := Path(name)).exists()
        ]
        key = [
            code,
            self.values["seed"],
            section,
            files,
            {name: str(path) for name, path in inputs.items()},
        ]
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:10]
        return self.home / "stages" / f"{stage}-{digest}"

    def _start(self, stage: str, folder: Path, inputs: Mapping[str, Path]) -> None:
        for name, path in inputs.items():
            _link(folder / name, path)
        settings = [option for setting in self.settings for option in ("--set", setting)]
        options = [
            "--params",
            str(ROOT / "params.yaml"),
            "--recipe",
            str(self.file),
            "--artifacts",
            str(folder),
        ]
        started = _cpu_seconds()
        trains = stage == "train_embedding"
        with recorded_gradients(folder / GRADIENTS) if trains else nullcontext():
            main(
                [stage, *options, *settings],
                prog_name="python -m components",
                standalone_mode=False,
            )
        (folder / SECONDS).write_text(f"{_cpu_seconds() - started:.1f}\n")


def enter(home: Path) -> None:
    """Create the folder of a rehearsal and enter the folder of its commands."""
    (home / CHECKOUT).mkdir(parents=True, exist_ok=True)
    os.chdir(home / CHECKOUT)


def _as_yaml(value: Any) -> str:
    """Return a value as YAML on one line; JSON's 2e-05 would be a text in YAML."""
    return (
        yaml.safe_dump(value, default_flow_style=True, width=10_000)
        .removesuffix("\n")
        .removesuffix("\n...")
    )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder: two recipes may need the same stage at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _link(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target, target_is_directory=True)


def _cpu_seconds() -> float:
    """Return the time of one core that this process and its children took: other work on the
    machine has no effect."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
