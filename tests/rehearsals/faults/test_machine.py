"""Faults of the machine: a clock that is set back, two runs at once, and kills of a single
stage."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.dvc import dvc_components
from tests.rehearsals.faults.checkout import ROOT, digests
from tests.rehearsals.faults.conftest import Cheap
from tests.rehearsals.faults.form import LONG
from tests.rehearsals.faults.rows import Record, record
from tests.rehearsals.faults.stages import link_inputs, only_error, run_stage

STAGE = "vectorize_captions"
DAY = 86_400


def test_clock_that_is_set_back_during_a_stage(
    cheap: Cheap,
    tmp_path: Path,
    mlflow_store: str,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Record,
) -> None:
    link_inputs(STAGE, cheap.artifacts, tmp_path / "artifacts")
    calls = 0
    clock, nanoseconds = time.time, time.time_ns

    def back() -> int:
        nonlocal calls
        calls += 1
        return DAY if calls > 2 else 0

    monkeypatch.setattr(time, "time", lambda: clock() - back())
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() - 10**9 * back())
    code, output = run_stage(STAGE, cheap.params, tmp_path / "artifacts")
    assert code == 0, output
    assert calls > 3, "the stage asked for the time before and after the change"
    monkeypatch.undo()
    # The files of the artifact have the time of tomorrow, as after the clock was set back by a day.
    for path in (tmp_path / "artifacts" / "text").iterdir():
        os.utime(path, (clock() + DAY, clock() + DAY))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_store)
    code, output = run_stage(STAGE, cheap.params, tmp_path / "artifacts")
    assert code == 0, output
    assert digests([tmp_path / "artifacts" / "text"]) == digests([cheap.artifacts / "text"])
    outcome = "the same bytes, also from a rerun over files with times of tomorrow"
    record(record_property, "clock set back by a day", f"`{STAGE}`", outcome, trials=2)


WRITER = """
import sys, time
from pathlib import Path
from runtime.artifacts import open_partial

open_partial(Path(sys.argv[1]), {})
print("began", flush=True)
time.sleep(60)
"""


def test_two_runs_of_a_stage_at_once(
    cheap: Cheap, tmp_path: Path, mlflow_store: str, record_property: Record
) -> None:
    link_inputs(STAGE, cheap.artifacts, tmp_path / "artifacts")
    command = [sys.executable, "-c", WRITER, str(tmp_path / "artifacts" / "text")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "began\n"
        code, output = run_stage(STAGE, cheap.params, tmp_path / "artifacts")
        assert code == 1
        assert "another process writes" in only_error(output)
        other.kill()
    assert run_stage(STAGE, cheap.params, tmp_path / "artifacts")[0] == 0
    assert digests([tmp_path / "artifacts" / "text"]) == digests([cheap.artifacts / "text"])
    outcome = "the second has one error; after the end of the first, a rerun has the same bytes"
    record(record_property, "two runs at once", f"`{STAGE}`", outcome, error=only_error(output))


@pytest.mark.timeout(0 if LONG else 600)
def test_stages_that_are_killed_again_and_again(
    cheap: Cheap, params: Path, tmp_path: Path, mlflow_store: str, record_property: Record
) -> None:
    chosen = (
        (params, 6, [stage.name for stage in dvc_components()])
        if LONG
        else (cheap.params, 3, ["prepare_dataset"])
    )
    file, kills, stages = chosen
    command = [
        sys.executable,
        "-m",
        "tests.rehearsals.faults.forks",
        file,
        tmp_path / "runs",
        str(kills),
        *stages,
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    assert sum(counts.values()) >= len(stages), "kills come before the end of the stage"
    moments = ", ".join(f"{stage} {count}" for stage, count in counts.items())
    record(
        record_property,
        "`kill -9` of the process group at a random moment",
        "each stage of `dvc repro`, after its imports",
        f"the same bytes after a rerun ({moments})",
        trials=sum(counts.values()),
    )
