"""A copy of this checkout where DVC runs the small recipe."""

import json
import os
import subprocess
from pathlib import Path

from pipelines.dvc import PACKAGES_STAGE, dvc_components

ROOT = Path(__file__).parents[2]
HOME = "runs/small"
STAGES = dvc_components()
RECORD_IMPORTS = """
import atexit, os, pathlib, sys

stage = sys.orig_argv[3] if sys.orig_argv[1:3] == ["-m", "components"] else "none"

class Forget:  # the imports of the check of its parameters, which a stage does before it imports its run.py
    def find_spec(self, name, path=None, target=None):
        if name == f"components.{stage}.run":
            for other in [other for other in sys.modules if other.partition(".")[0] == "bifocal"]:
                del sys.modules[other]

def record():
    names = [name for name in sys.modules if name.startswith(("bifocal", f"components.{stage}"))]
    (pathlib.Path(os.environ["RECORDED_IMPORTS"]) / stage).write_text("\\n".join(names))

sys.meta_path.insert(0, Forget())
atexit.register(record)
"""
"""sitecustomize.py of the stages: writes the modules that each imported."""


def run(checkout: Path, *command: str) -> str:
    """Run a command in the checkout; return its output."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")
    }
    environment |= {"OMP_NUM_THREADS": "1"}
    if (checkout / "imports").is_dir():
        environment |= {
            "PYTHONPATH": str(checkout / "imports"),
            "RECORDED_IMPORTS": str(checkout / "imports"),
        }
    done = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def repro(checkout: Path) -> set[str]:
    """Render and run the small recipe; return the names of the executed stages."""
    run(checkout, "python", "-m", "pipelines", "render", "--recipe", "small.yaml")
    lines = run(checkout, "dvc", "repro", f"{HOME}/dvc.yaml").splitlines()
    # "Running stage 'runs/small/dvc.yaml:evaluate':"
    names = {line.split(":")[1].rstrip("'") for line in lines if line.startswith("Running stage")}
    assert PACKAGES_STAGE in names, "the installed versions are compared each time"
    return names - {PACKAGES_STAGE}


def changed_stages(checkout: Path) -> set[str]:
    """Stages that 'dvc status' shows as changed themselves, not by an input, once versions and code
    are compared."""
    run(checkout, "dvc", "repro", f"{HOME}/dvc.yaml:{PACKAGES_STAGE}")
    status = json.loads(run(checkout, "dvc", "status", "--json", f"{HOME}/dvc.yaml"))
    return {name.split(":")[1] for name in status} - {PACKAGES_STAGE}


def make_checkout(folder: Path) -> None:
    """Copy this checkout, and run the small recipe there."""
    files = run(ROOT, "git", "ls-files", "--cached", "--others", "--exclude-standard", "-z").split(
        "\0"
    )
    for name in filter(lambda name: (ROOT / name).is_file(), files):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    (folder / "small.yaml").write_bytes((ROOT / "tests" / "small.yaml").read_bytes())
    (folder / "imports").mkdir()
    (folder / "imports" / "sitecustomize.py").write_text(RECORD_IMPORTS)
    (folder / ".git" / "info").mkdir(parents=True)
    (folder / ".git" / "info" / "exclude").write_text("/imports/\n")
    run(folder, "git", "init", "--quiet")
    assert repro(folder) == {component.name for component in STAGES}
