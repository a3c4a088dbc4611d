"""Local runs: the graph with a fake engine, then the small pipeline with real stages."""

import json
import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from components.__main__ import main as components
from components.catalog import pipeline_components
from pipelines.kubeflow import resources
from pipelines.local.engines import HostEngine
from pipelines.local.runner import LocalRun
from pipelines.local.step import TaskState
from runtime import artifacts
from tests.pipelines.compiled import REVISION, SMALL_VALUES, compile_text

STEP = resources.load().default
STAGES = [stage.name for stage in pipeline_components()]
TASKS = [name.replace("_", "-") for name in STAGES]


@dataclass
class FakeEngine:
    """Writes an empty artifact per output, or fails the first ``failures[stage]`` attempts of a stage."""

    failures: dict[str, int] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    messages: dict[str, Any] = field(default_factory=dict)
    code: str = "first"

    def version(self, spec: Mapping[str, Any]) -> str:
        return self.code

    def run(self, spec: Mapping[str, Any], command: list[str], timeout: float, log: Path) -> int:
        stage, message = command[3], json.loads(command[5])
        self.started.append(stage)
        self.messages[stage] = message
        if self.failures.get(stage, 0) > 0:
            self.failures[stage] -= 1
            with log.open("a") as file:
                file.write(f"error: no memory\n{self.failures[stage]} failures left\n")
            return 3
        outputs = {}
        for name, entry in message["outputs"]["artifacts"].items():
            described = entry["artifacts"][0]
            path = Path(described["uri"])
            artifacts.commit(artifacts.open_partial(path, {}), path, {"key": stage})
            outputs[name] = {"artifacts": [{**described, "metadata": {"sha256": artifacts.artifact_hash(path)}}]}
        artifacts.write_json(Path(message["outputs"]["outputFile"]), {"artifacts": outputs})
        return 0

    def stop(self) -> None:
        raise AssertionError("no test interrupts this engine")


@dataclass
class InterruptedEngine(FakeEngine):
    """Sends Ctrl-C while the first step runs; only ``stop`` ends that step."""

    killed: threading.Event = field(default_factory=threading.Event)

    def run(self, spec: Mapping[str, Any], command: list[str], timeout: float, log: Path) -> int:
        self.started.append(command[3])
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return -signal.SIGKILL if self.killed.wait(20.0) else super().run(spec, command, timeout, log)

    def stop(self) -> None:
        self.killed.set()


@dataclass
class MixedEngine(HostEngine):
    """Runs the steps in ``processes`` as processes, the others in this one: each process imports for seconds."""

    processes: tuple[str, ...] = ("prepare_dataset", "notify")

    def run(self, spec: Mapping[str, Any], command: list[str], timeout: float, log: Path) -> int:
        if command[3] in self.processes:
            return super().run(spec, command, timeout, log)
        compiled = {entry["name"]: entry["value"] for entry in spec["env"]}
        with patch.dict(os.environ, {**compiled, **self.environment}):
            result = CliRunner().invoke(components, command[3:])
        log.write_text(f"{result.output}\n{result.exception}\n")
        return result.exit_code


def execute(
    folder: Path, engine: FakeEngine, parallel: int = 1, revision: str = REVISION
) -> tuple[dict[str, TaskState], list[float]]:
    """Run the default pipeline; return the final states and the delays before retries."""
    delays: list[float] = []
    text = compile_text(push=False).replace(REVISION, revision)
    return LocalRun(text, folder, engine, parallel=parallel, sleep=delays.append).execute(), delays


@pytest.mark.parametrize("parallel", [1, 3])
def test_every_step_runs_once_after_the_writers_of_its_inputs(tmp_path: Path, parallel: int) -> None:
    engine = FakeEngine()
    states, _ = execute(tmp_path, engine, parallel)
    assert set(states) == {*TASKS, "notify"}
    assert set(states.values()) == {TaskState.SUCCEEDED}
    assert sorted(engine.started) == sorted([*STAGES, "notify"])
    for stage in pipeline_components():
        for name in stage.inputs:
            writer = next(other.name for other in pipeline_components() if name in other.outputs)
            assert engine.started.index(writer) < engine.started.index(stage.name)
            entry = engine.messages[stage.name]["inputs"]["artifacts"][name]["artifacts"][0]
            assert Path(entry["uri"]) == tmp_path / writer.replace("_", "-") / name
            assert entry["metadata"]["sha256"] == artifacts.artifact_hash(Path(entry["uri"]))


def test_a_failed_step_skips_its_dependents_and_is_reported_to_notify(tmp_path: Path) -> None:
    engine = FakeEngine({"vectorize_captions": 99})
    states, delays = execute(tmp_path, engine)
    assert states["vectorize-captions"] is TaskState.FAILED
    dependents = {"train-embedding", "evaluate", "export-onnx", "register-model"}
    assert {name for name, state in states.items() if state is TaskState.SKIPPED} == dependents
    assert not dependents & {name.replace("_", "-") for name in engine.started}
    assert engine.started.count("vectorize_captions") == 1 + STEP.retries
    first = float(STEP.retry_delay)
    assert delays == [first * STEP.retry_factor**retry for retry in range(STEP.retries)]
    status = engine.messages["notify"]["inputs"]["parameterValues"]["status"]
    assert status["state"] == "FAILED"
    # The whole error of the last attempt.
    assert status["error"]["message"].endswith(f"exit code 3: error: no memory\n{98 - STEP.retries} failures left")


def test_a_step_that_succeeds_on_its_last_retry_does_not_fail_the_run(tmp_path: Path) -> None:
    engine = FakeEngine({"evaluate": STEP.retries})
    states, _ = execute(tmp_path, engine)
    assert states["evaluate"] is TaskState.SUCCEEDED
    assert engine.messages["notify"]["inputs"]["parameterValues"]["status"]["state"] == "SUCCEEDED"


def test_a_second_run_continues_after_the_last_finished_step(tmp_path: Path) -> None:
    execute(tmp_path, FakeEngine({"train_embedding": 99}))
    engine = FakeEngine()
    states, _ = execute(tmp_path, engine, revision="b" * 40)  # another commit with the same code
    assert sorted(engine.started) == sorted(["train_embedding", "evaluate", "export_onnx", "register_model", "notify"])
    assert states["prepare-dataset"] is TaskState.REUSED
    assert all(state.succeeded for state in states.values())


def test_changed_code_runs_every_step_again(tmp_path: Path) -> None:
    execute(tmp_path, FakeEngine())
    engine = FakeEngine(code="second")
    states, _ = execute(tmp_path, engine)
    assert sorted(engine.started) == sorted([*STAGES, "notify"])
    assert TaskState.REUSED not in states.values()
    versions = {HostEngine({}).version({"command": ["python", "-m", "components", name]}) for name in STAGES}
    assert len(versions) == len(STAGES)


def test_a_lost_output_is_written_again(tmp_path: Path) -> None:
    execute(tmp_path, FakeEngine())
    (tmp_path / "pretrain-sorter" / "sorter" / artifacts.MANIFEST).unlink()
    engine = FakeEngine()
    execute(tmp_path, engine)
    assert engine.started[0] == "pretrain_sorter"


def test_interrupt_kills_the_running_step_and_starts_no_other(tmp_path: Path) -> None:
    engine, former = InterruptedEngine(), signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            execute(tmp_path, engine)
    finally:
        signal.signal(signal.SIGINT, former)
    assert len(engine.started) == 1
    assert engine.killed.is_set()


def test_an_unknown_argument_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no argument 'revison'; it has repository, revision"):
        LocalRun(compile_text(push=False), tmp_path, FakeEngine(), {"revison": "a"}).execute()


def test_the_small_pipeline_runs_on_the_host_and_is_reused(tmp_path: Path) -> None:
    text = compile_text(SMALL_VALUES, push=False)
    engine = MixedEngine({"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db", "OMP_NUM_THREADS": "1"})
    states = LocalRun(text, tmp_path / "run", engine, sleep=lambda seconds: None).execute()
    logs = "\n".join(path.read_text()[-2000:] for path in sorted(tmp_path.glob("run/*/log.txt")))
    assert set(states.values()) == {TaskState.SUCCEEDED}, logs
    metrics = json.loads((tmp_path / "run/evaluate/metrics/metrics.json").read_text())
    assert metrics["images"] == SMALL_VALUES["prepare_dataset"]["corpus"]["test"]
    registration = json.loads((tmp_path / "run/register-model/registration/registration.json").read_text())
    assert registration["version"] == 1
    again = LocalRun(text, tmp_path / "run", engine).execute()
    assert {name for name, state in again.items() if state is not TaskState.REUSED} == {"notify", "register-model"}
    registration = json.loads((tmp_path / "run/register-model/registration/registration.json").read_text())
    assert registration["version"] == 1, "a model that is registered gets no second version"
