"""A run folder: parameters and artifacts of one training, and the commands' default folder."""

import os
from pathlib import Path
from typing import Any

import click
import yaml

RUNS = Path("runs")
PARAMETERS, ARTIFACTS = "params.yaml", "artifacts"

run_option = click.option(
    "--run",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder of the run; by default the latest one below runs/.",
)


class FolderOrAddress(click.Path):
    """An existing folder or file of the user, as an absolute path, or an address on S3."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path or the address."""
        from bifocal.datasets.remote_files import is_address  # imports pandas

        return value if is_address(value) else str(super().convert(value, param, ctx))


def latest_run(folder: Path | None) -> Path:
    """Return ``folder``, or else the run below ``runs/`` that was written last."""
    if folder is not None:
        if not (folder / PARAMETERS).is_file():
            raise FileNotFoundError(f"{folder} is not a run folder: it has no {PARAMETERS}; see 'bifocal train'")
        return folder
    found = [path.parent for path in RUNS.glob(f"*/{PARAMETERS}") if (path.parent / ARTIFACTS / "onnx").is_dir()]
    if not found:
        raise FileNotFoundError(
            f"there is no finished run below {RUNS}/: train one with 'bifocal train DIR', or name it with --run"
        )
    return max(found, key=lambda path: (path / PARAMETERS).stat().st_mtime)


def shipped_file(name: str) -> Path:
    """Return a file of the checkout, such as ``params.yaml``, which a wheel has beside this module."""
    installed = Path(__file__).parent / "data" / name
    return installed if installed.is_file() else Path(__file__).parents[2] / name


def write_parameters(folder: Path, values: dict[str, Any]) -> None:
    """Write ``params.yaml`` of a run, completely or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"{PARAMETERS}.new"
    temporary.write_text("# Written by 'bifocal train'.\n" + yaml.safe_dump(values, sort_keys=False))
    temporary.replace(folder / PARAMETERS)


def use_store_of(folder: Path) -> None:
    """Track stages in the folder's own MLflow database, unless ``MLFLOW_TRACKING_URI`` names another."""
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{(folder / 'mlflow.db').resolve()}")
