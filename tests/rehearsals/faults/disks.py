"""A full disk at each stage: one error, nothing half-written, and the same bytes after the disk is
enlarged."""

import shutil
from pathlib import Path

import pytest

from pipelines.dvc import dvc_components
from tests.rehearsals.faults.checkout import digests
from tests.rehearsals.faults.rows import Record, record
from tests.rehearsals.faults.stages import (
    STAGES,
    can_mount,
    disk,
    enlarge,
    kilobytes,
    link_inputs,
    only_error,
    run_stage,
)

SHARES = (0.0, 0.5, 0.9)
"""Sizes of the disk relative to the files of the stage."""


@pytest.mark.skipif(not can_mount(), reason="mounting a tmpfs needs root")
@pytest.mark.parametrize("stage", [stage.name for stage in dvc_components()])
def test_stage_on_a_full_disk(
    stage: str,
    finished: Path,
    params: Path,
    tmp_path: Path,
    mlflow_store: str,
    record_property: Record,
) -> None:
    outputs = STAGES[stage].outputs
    expected = digests([finished / name for name in outputs])
    size = sum(kilobytes(finished / name) for name in outputs)
    errors = []
    for share in SHARES:
        with disk(tmp_path / f"disk-{share}", max(8, int(share * size))) as folder:
            link_inputs(stage, finished, folder)
            code, output = run_stage(stage, params, folder)
            assert code == 1, f"{stage} fits on {share:.0%} of its size"
            errors.append(only_error(output))
            assert "No space left on device" in errors[-1]
            assert not any((folder / name).exists() for name in outputs)
            enlarge(folder)
            code, output = run_stage(stage, params, folder)
            assert code == 0, output
            assert digests([folder / name for name in outputs]) == expected
    record(
        record_property,
        "disk full (tmpfs of 0, 50 and 90 % of the output)",
        f"`{stage}`",
        "one error, no artifact; the same bytes on an enlarged disk",
        trials=len(SHARES),
        error=errors[1],
    )


@pytest.mark.skipif(not can_mount(), reason="mounting a tmpfs needs root")
def test_database_of_mlflow_on_a_full_disk(
    finished: Path,
    params: Path,
    tmp_path: Path,
    empty_mlflow_store: Path,
    record_property: Record,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = empty_mlflow_store.stat().st_size // 1024
    with disk(tmp_path / "disk", size + 12) as folder:
        store = shutil.copy(empty_mlflow_store, folder / "mlflow.db")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}")
        link_inputs("vectorize_captions", finished, tmp_path / "artifacts")
        code, output = run_stage("vectorize_captions", params, tmp_path / "artifacts")
        error = only_error(output) if code else output.strip().splitlines()[-1]
        enlarge(folder)
        assert run_stage("vectorize_captions", params, tmp_path / "artifacts")[0] == 0
    assert digests([tmp_path / "artifacts" / "text"]) == digests([finished / "text"])
    record(
        record_property,
        "disk full under the database of MLflow",
        "`vectorize_captions`",
        "one error; the same bytes on an enlarged disk"
        if code
        else "the stage goes on without tracking",
        error=error,
    )
