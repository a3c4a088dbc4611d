"""Copy of this checkout in which commands are run, killed and run again."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bifocal.search.collection.format import DESCRIPTION as COLLECTION
from runtime.artifacts import MANIFEST, hash_files, read_manifest
from tests.rehearsals.faults.processes import kill_group

ROOT = Path(__file__).parents[3]
RECIPE = "small.yaml"
LIBRARIES = ("bifocal", "runtime", "components", "pipelines")
OTHER_FILES = ("params.yaml", "pyproject.toml", "requirements", ".dvc", ".dvcignore", ".gitignore")
MEASURED = ("index.json",)
"""Files that hold measured times: their bytes differ between any two runs."""


@dataclass(frozen=True)
class Checkout:
    """Files of this checkout in another folder, with one commit.

    Args:
        folder: of the copy; its log is beside it.
    """

    folder: Path

    @property
    def log(self) -> Path:
        """Output of the commands, beside the folder."""
        return self.folder.with_name(f"{self.folder.name}.log")

    def output(self) -> str:
        """Return the output of the last command."""
        return self.log.read_text()

    def copy(self, changes: Mapping[str, str] | None = None) -> None:
        """Copy the files of this checkout that git does not ignore, and commit them.

        Args:
            changes: text of files that differ, by path.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        listed = [
            "git",
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "-z",
            *LIBRARIES,
            *OTHER_FILES,
        ]
        found = subprocess.run(
            listed, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split("\0")
        names = [name for name in found if (ROOT / name).is_file()]
        for name in names:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, self.folder / name)
        shutil.copyfile(ROOT / "tests" / "small.yaml", self.folder / RECIPE)
        for name, text in (changes or {}).items():
            (self.folder / name).write_text(text)
        if not (self.folder / ".git").exists():
            self.run("git", "init", "--quiet")
        identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
        self.run("git", "add", ".")
        self.run("git", *identity, "commit", "--quiet", "--allow-empty", "--message", "copy")

    def reset(self) -> None:
        """Delete all results, caches and databases of earlier runs."""
        for name in ("runs", "artifacts", "mlruns", "mlartifacts", ".dvc/cache", ".dvc/tmp"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for path in self.folder.glob("mlflow.db*"):
            path.unlink()

    @contextmanager
    def started(self, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start a command in a process group of its own, and kill the group at the end; its output
        replaces the log."""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")
        }
        environment |= {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
        }
        with self.log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment | {"PYTHONUNBUFFERED": "1"},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                kill_group(process)

    def run(self, *command: str) -> str:
        """Run a command to its end; return its output.

        Raises:
            AssertionError: it failed.
        """
        with self.started(*command) as process:
            code = process.wait()
        assert code == 0, f"{' '.join(command)}\n{self.output()[-3000:]}"
        return self.output()


def digests(folders: Sequence[Path]) -> dict[str, str]:
    """SHA-256 of every file of the artifacts, by folder and name; measured times are left out.

    Of a manifest, the fingerprint and the other files count, and not the metrics. Of a collection,
    its images count instead of the path to them, which has the id of the run on Kubeflow; so its
    hash as an input is left out.
    """
    found: dict[str, str] = {}
    for folder in folders:
        manifest = read_manifest(folder)
        assert {**manifest["files"], MANIFEST: ""}.keys() == hash_files(folder.resolve()).keys()
        manifest["inputs"].pop("collection", None)
        for name, digest in hash_files(folder.resolve()).items():
            if name == MANIFEST:
                digest = json.dumps(
                    {key: manifest[key] for key in manifest if key not in ("metrics", "files")}
                )
            elif name == COLLECTION:
                content = json.loads((folder / name).read_text())
                digest = json.dumps(
                    content | {"root": hash_files(folder.resolve() / content["root"])}
                )
            if name not in MEASURED:
                found[f"{folder.name}/{name}"] = digest
    return found
