"""Files that were damaged on disk, or that another version wrote: one error that names the file."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bifocal.durable import write_json
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.serialization import (
    WEIGHTS_FILE,
    load_state,
    read_tensors,
    save_network,
    write_tensors,
)
from runtime import artifacts
from tests.rehearsals.faults.checkout import digests
from tests.rehearsals.faults.conftest import Cheap
from tests.rehearsals.faults.form import LONG
from tests.rehearsals.faults.rows import Record, record
from tests.rehearsals.faults.stages import only_error, run_stage

STAGE = "vectorize_captions"


def flip(file: Path) -> None:
    """Change one bit in the middle of a file; size and time of change stay."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def raise_version(file: Path) -> None:
    """Write the manifest of a later version of the project."""
    manifest = json.loads(file.read_text())
    write_json(file, manifest | {"schema_version": 99})


DAMAGES: list[tuple[Callable[[Path], None], str, str, str]] = [
    (
        flip,
        "one bit of a table flipped",
        "captions.parquet",
        "captions.parquet differs from its hash",
    ),
    (truncate, "table cut to half", "images.parquet", "images.parquet differs from its hash"),
    (
        Path.unlink,
        "table deleted",
        "captions.parquet",
        "captions.parquet is missing, but it is in manifest.json",
    ),
    (
        raise_version,
        "manifest of another version",
        artifacts.MANIFEST,
        "schema version 99, expected 1",
    ),
    (Path.unlink, "manifest deleted", artifacts.MANIFEST, "is missing or incomplete"),
    (truncate, "manifest cut to half", artifacts.MANIFEST, "manifest.json is not complete JSON"),
]


@pytest.mark.parametrize(("damage", "name", "file", "message"), DAMAGES if LONG else DAMAGES[::3])
def test_stage_with_a_damaged_input(
    damage: Callable[[Path], None],
    name: str,
    file: str,
    message: str,
    cheap: Cheap,
    tmp_path: Path,
    mlflow_store: str,
    record_property: Record,
) -> None:
    dataset = shutil.copytree(cheap.artifacts / "dataset", tmp_path / "artifacts" / "dataset")
    damage(dataset / file)
    code, output = run_stage(STAGE, cheap.params, tmp_path / "artifacts")
    assert code == 1
    assert message in only_error(output)
    assert not (tmp_path / "artifacts" / "text").exists()
    for stage in ("prepare_dataset", STAGE):
        assert run_stage(stage, cheap.params, tmp_path / "artifacts")[0] == 0
    folders = [tmp_path / "artifacts" / name for name in ("dataset", "text")]
    assert digests(folders) == digests([cheap.artifacts / folder.name for folder in folders])
    record(
        record_property,
        name,
        f"`dataset/{file}`, before `{STAGE}`",
        "one error; the same bytes after the writing stage was run again",
        error=only_error(output),
    )


def feature_shard(folder: Path) -> tuple[Path, Callable[[], object]]:
    with FeatureWriter(folder, regions=2, dim=4, metadata={}, images_per_file=4) as writer:
        for number in range(8):
            writer.add(str(number), np.full((2, 4), number, np.float32))
    return sorted(folder.glob("*.arrow"))[1], lambda: FeatureStore(folder)


def network(folder: Path) -> tuple[Path, Callable[[], object]]:
    save_network(folder, {"name": "Linear"}, torch.nn.Linear(4, 4).state_dict())
    return folder / WEIGHTS_FILE, lambda: load_state(folder)


def checkpoint(folder: Path) -> tuple[Path, Callable[[], object]]:
    write_tensors(folder / "last.safetensors", {"weight": torch.ones(4)}, {"epoch": 1})
    return folder / "last.safetensors", lambda: read_tensors(folder / "last.safetensors")


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (feature_shard, "shard of features"),
        (network, "`model.safetensors`"),
        (checkpoint, "checkpoint of a training"),
    ],
)
def test_damaged_file_is_refused_by_its_reader(
    write: Callable[[Path], tuple[Path, Callable[[], object]]],
    name: str,
    tmp_path: Path,
    record_property: Record,
) -> None:
    file, read = write(tmp_path)
    read()
    truncate(file)
    with pytest.raises(ValueError, match=file.name) as error:
        read()
    record(
        record_property,
        f"{name} cut to half",
        "its reader, in Python",
        "one error",
        error=str(error.value),
    )
