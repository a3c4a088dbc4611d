"""A training on a full disk: a one-line error, no incomplete artifact, and the next run goes on.

The rehearsal of faults has the other stages."""

from pathlib import Path

import pytest

from bifocal.serialization import read_tensors
from tests.rehearsals.faults.rows import Record, record
from tests.rehearsals.faults.stages import (
    can_mount,
    disk,
    enlarge,
    only_error,
    run_stage,
    write_params,
)


@pytest.mark.skipif(not can_mount(), reason="mounting a tmpfs needs root")
def test_training_resumes_from_the_last_checkpoint_that_fitted_on_the_disk(
    tmp_path: Path, mlflow_store: str, record_property: Record
) -> None:
    # The weights have 18 kB and a checkpoint three times as many: there is no room for a second
    # checkpoint.
    training = {
        "batch_size": 128,
        "learning_rate": 0.01,
        "schedule": "Constant",
        "patience": 3,
        "tolerance": 0.01,
    }
    section = {
        "sorter": {"name": "PositionwiseLSTMSorter", "hidden": 22, "layers": 1},
        "length": 5,
        "training": {**training, "vectors_per_epoch": 256, "epochs": 3},
    }
    params = write_params(tmp_path / "params.yaml", {"pretrain_sorter": section})
    with disk(tmp_path / "disk", 100) as folder:
        code, output = run_stage("pretrain_sorter", params, folder)
        assert code == 1
        assert "No space left on device" in output
        error = only_error(output)
        assert not (folder / "sorter").exists()
        checkpoint = next((folder / "sorter.partial").rglob("last.safetensors"))
        assert len(read_tensors(checkpoint)[1]["history"]) == 1
        enlarge(folder)
        code, output = run_stage("pretrain_sorter", params, folder)
        assert code == 0, output
        assert len((folder / "sorter" / "history.csv").read_text().splitlines()) == 1 + 3
    outcome = (
        "one error, no artifact; continued from the last checkpoint after the disk is enlarged"
    )
    record(
        record_property, "disk full (tmpfs of 100 kB)", "`pretrain_sorter`", outcome, error=error
    )
