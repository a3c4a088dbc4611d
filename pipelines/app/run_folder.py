"""A run folder: parameters and artifacts of a training or of an index, and the commands' default
folder."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from bifocal.datasets.remote_files import is_address
from bifocal.durable import check_own, complete, write_text
from bifocal.onnx.files import read_whole

RUNS = Path("runs")
PARAMETERS, ARTIFACTS = "params.yaml", "artifacts"
INDEXED = "index"
"""Section of ``params.yaml`` in a folder of ``bifocal index``, which has no other section."""
RESULTS = ("artifacts/collection/items.parquet", "artifacts/dataset/images.parquet")
COMPARED = 64
"""Images whose contents show that a source has moved."""
PICTURES = (".png", ".jpg", ".jpeg", ".webp")

run_option = click.option(
    "--run",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder of the run; by default the latest one below runs/.",
)

follow_links_option = click.option(
    "--follow-links",
    is_flag=True,
    help="Links out of DIRECTORY, and to folders, are your own: follow them.",
)


class FolderOrAddress(click.Path):
    """An existing folder or file of the user, as an absolute path, or an address on S3."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path or the address."""
        return value if is_address(value) else str(super().convert(value, param, ctx))


def check_picture(
    context: click.Context, option: click.Parameter, file: Path | None
) -> Path | None:
    """Return a file to write a picture to, if Pillow knows its suffix."""
    if file is not None and file.suffix.lower() not in PICTURES:
        raise click.BadParameter(f"{file}: expected a name that ends in {', '.join(PICTURES)}")
    return file


def latest_run(folder: Path | None) -> Path:
    """Return ``folder``, or else the run below ``runs/`` that was written last."""
    if folder is not None:
        if not (folder / PARAMETERS).is_file():
            raise FileNotFoundError(
                f"{folder} is not a run folder: it has no {PARAMETERS}; see 'bifocal train'"
            )
        complete(folder / ARTIFACTS)
        return folder
    runs = [path.parent for path in RUNS.glob(f"*/{PARAMETERS}")]
    for run in runs:
        complete(run / ARTIFACTS)
    found = [run for run in runs if (run / ARTIFACTS / "onnx").is_dir()]
    if not found:
        raise FileNotFoundError(
            f"there is no finished run below {RUNS}/: write one with 'bifocal index DIR' or "
            "'bifocal train DIR', or name it with --run"
        )
    return max(found, key=lambda path: (path / PARAMETERS).stat().st_mtime)


def run_name(directory: str) -> str:
    """Return the name of a folder of images as the name of its run: letters, digits, "_", "." and
    "-"."""
    path = Path(directory)
    return re.sub(r"[^\w.-]+", "_", path.stem if path.is_file() else path.name)


def check_owner(folder: Path, new: Mapping[str, Any], *, is_named: bool) -> dict[str, Any]:
    """Return the parameters that a run folder has; none if it is new.

    A folder that the user names goes on with the same images at another place, if the former place
    is gone.

    Args:
        new: parameters to write: of an index or of a training.

    Raises:
        FileExistsError: the folder holds results of another source, results of the other command,
            or other files.
    """
    from runtime.parameters import read_yaml  # imports pydantic

    option = "--folder" if INDEXED in new else "--run"
    if not (folder / PARAMETERS).is_file():
        if folder.is_dir() and any(folder.iterdir()):
            raise FileExistsError(
                f"{folder} is not a run folder, and it is not empty: name another one with {option}"
            )
        return {}
    values: dict[str, Any] = read_yaml(folder / PARAMETERS) or {}
    former, source, is_same_kind = (
        read_whole(folder / PARAMETERS, lambda _: _source(values)),
        _source(new),
        (INDEXED in values) == (INDEXED in new),
    )
    if is_same_kind and former == source:
        return values
    moved = is_same_kind and former is not None and _is_moved(folder, former, source)
    if moved and is_named:
        return values
    hint = f"; {source} has its images, so go on with {option} {folder}" if moved else ""
    raise FileExistsError(
        f"{folder} holds {_results(values)}, and this command writes {_results(new)}: name "
        f"another run folder with {option}{hint}"
    )


def _is_moved(folder: Path, former: str, source: str | None) -> bool:
    """Return whether a source has the images of the results in a run folder, and the former place
    of the source is gone."""
    import pyarrow.parquet as pq  # a query needs none of them

    from bifocal.search.collection.sources import files_source

    if source is None or is_address(former) or is_address(source) or os.path.lexists(former):
        return False
    table = next((path for path in map(folder.joinpath, RESULTS) if path.is_file()), None)
    if table is None:
        return False
    rows = pq.read_table(table).to_pylist()
    known = [row for row in rows if row["sha256"] and not row.get("deleted")]
    known = known[:: max(1, len(known) // COMPARED)]
    with TemporaryDirectory() as unpacked:
        try:
            found = files_source(Path(source), Path(unpacked))
        except ValueError:
            return False
        entries = {entry.item_id: entry for entry in found.entries}
        same = 0
        for row in known:
            entry = entries.get(row.get("item_id", row.get("image_id")))
            same += entry is not None and found.digest(entry) == row["sha256"]
    return 2 * same > len(known)


def _source(values: Mapping[str, Any]) -> str | None:
    if INDEXED in values:
        return str(values[INDEXED]["directory"])
    corpus = (values.get("prepare_dataset") or {}).get("corpus")
    root = corpus.get("root") if isinstance(corpus, Mapping) else None
    return None if root is None else str(root)


def _results(values: Mapping[str, Any]) -> str:
    return (
        f"{'the index' if INDEXED in values else 'a model'} of "
        f"{_source(values) or 'another corpus'}"
    )


def shipped_file(name: str) -> Path:
    """Return a file of the checkout, such as ``params.yaml``, which a wheel has beside this
    module."""
    installed = Path(__file__).parent / "data" / name
    return installed if installed.is_file() else Path(__file__).parents[2] / name


def write_parameters(folder: Path, values: dict[str, Any]) -> None:
    """Write ``params.yaml`` of a run, completely or not at all."""
    from runtime.parameters import dump_yaml  # imports pydantic

    folder.mkdir(parents=True, exist_ok=True)
    written_by = "index" if INDEXED in values else "train"
    write_text(folder / PARAMETERS, f"# Written by 'bifocal {written_by}'.\n" + dump_yaml(values))


def use_store_of(folder: Path) -> None:
    """Track stages in the folder's own MLflow database, unless ``MLFLOW_TRACKING_URI`` names
    another."""
    check_own(folder / "mlflow.db")
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{(folder / 'mlflow.db').resolve()}")
