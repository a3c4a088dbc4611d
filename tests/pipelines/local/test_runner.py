"""The walk over the compiled graph, with an engine that only notes what it is asked; then with real stages."""

import json
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from components.catalog import pipeline_components
from pipelines.kubeflow import compile as kubeflow
from pipelines.kubeflow import resources
from pipelines.local.engines import HostEngine
from pipelines.local.runner import Run
from pipelines.local.step import State
from runtime import artifacts, parameters

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(Path(__file__).parents[1]))
VALUES = parameters.load(ROOT / "params.yaml")
LOCAL = resources.read().model_copy(update={"record": False})
RETRIES = LOCAL.default.retries
TASKS = [stage.name.replace("_", "-") for stage in pipeline_components()]
TEXT = kubeflow.compile_pipeline(VALUES, LOCAL, "a" * 40)


@dataclass
class Notebook:
    """Writes an empty artifact for each output, unless the stage is to fail that often."""

    failures: dict[str, int] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    messages: dict[str, Any] = field(default_factory=dict)
    code: str = "first"

    def version(self, container: Mapping[str, Any]) -> str:
        return self.code

    def run(self, container: Mapping[str, Any], command: list[str], seconds: float, log: Path) -> int:
        stage, message = command[3], json.loads(command[5])
        self.started.append(stage)
        self.messages[stage] = message
        if self.failures.get(stage, 0) > 0:
            self.failures[stage] -= 1
            with log.open("a") as file:
                file.write(f"error: no memory\nleft {self.failures[stage]} times\n")
            return 3
        answered = {}
        for name, listed in message["outputs"]["artifacts"].items():
            made = listed["artifacts"][0]
            artifacts.commit(artifacts.open_partial(Path(made["uri"]), {}), Path(made["uri"]), {"key": stage})
            answered[name] = {
                "artifacts": [{**made, "metadata": {"sha256": artifacts.artifact_hash(Path(made["uri"]))}}]
            }
        artifacts.write_json(Path(message["outputs"]["outputFile"]), {"artifacts": answered})
        return 0

    def stop(self) -> None:
        raise AssertionError("nobody interrupts it")


@dataclass
class Interrupted(Notebook):
    """Ctrl-C comes while the first step runs, which only ``stop`` ends."""

    killed: threading.Event = field(default_factory=threading.Event)

    def run(self, container: Mapping[str, Any], command: list[str], seconds: float, log: Path) -> int:
        self.started.append(command[3])
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return -signal.SIGKILL if self.killed.wait(20.0) else super().run(container, command, seconds, log)

    def stop(self) -> None:
        self.killed.set()


def run(folder: Path, engine: Notebook, parallel: int = 1, text: str = TEXT) -> tuple[dict[str, State], list[float]]:
    pauses: list[float] = []
    return Run(text, folder, engine, parallel=parallel, sleep=pauses.append).start(), pauses


@pytest.mark.parametrize("parallel", [1, 3])
def test_every_step_runs_once_after_what_it_reads(tmp_path: Path, parallel: int) -> None:
    engine = Notebook()
    states, _ = run(tmp_path, engine, parallel)
    assert set(states) == {*TASKS, "notify"}
    assert set(states.values()) == {State.SUCCEEDED}
    assert sorted(engine.started) == sorted([*(stage.name for stage in pipeline_components()), "notify"])
    for stage in pipeline_components():
        for name in stage.inputs:
            writer = next(other.name for other in pipeline_components() if name in other.outputs)
            assert engine.started.index(writer) < engine.started.index(stage.name)
            given = engine.messages[stage.name]["inputs"]["artifacts"][name]["artifacts"][0]
            assert Path(given["uri"]) == tmp_path / writer.replace("_", "-") / name
            assert given["metadata"]["sha256"] == artifacts.artifact_hash(Path(given["uri"]))


def test_a_step_that_keeps_failing_fails_the_run_and_nothing_after_it_starts(tmp_path: Path) -> None:
    engine = Notebook({"vectorize_captions": 99})
    states, pauses = run(tmp_path, engine)
    assert states["vectorize-captions"] is State.FAILED
    after = {"train-embedding", "evaluate", "export-onnx", "register-model"}
    assert {name for name, state in states.items() if state is State.SKIPPED} == after
    assert not after & {name.replace("_", "-") for name in engine.started}
    assert engine.started.count("vectorize_captions") == 1 + RETRIES
    first = float(LOCAL.default.retry_after.removesuffix("s"))
    assert pauses == [first * LOCAL.default.retry_factor**retry for retry in range(RETRIES)]
    status = engine.messages["notify"]["inputs"]["parameterValues"]["status"]
    assert status["state"] == "FAILED"
    # What the last attempt said, all of it.
    assert status["error"]["message"].endswith(f"exit code 3: error: no memory\nleft {98 - RETRIES} times")


def test_a_step_that_recovers_does_not_fail_the_run(tmp_path: Path) -> None:
    engine = Notebook({"evaluate": RETRIES})
    states, _ = run(tmp_path, engine)
    assert states["evaluate"] is State.SUCCEEDED
    assert engine.messages["notify"]["inputs"]["parameterValues"]["status"]["state"] == "SUCCEEDED"


def test_the_next_run_goes_on_where_the_former_failed(tmp_path: Path) -> None:
    run(tmp_path, Notebook({"train_embedding": 99}))
    engine = Notebook()
    states, _ = run(tmp_path, engine, text=TEXT.replace("a" * 40, "b" * 40))  # of another commit with the same code
    assert engine.started == ["train_embedding", "evaluate", "export_onnx", "register_model", "notify"]
    assert states["prepare-dataset"] is State.REUSED
    assert all(state.good for state in states.values())


def test_other_code_runs_again(tmp_path: Path) -> None:
    run(tmp_path, Notebook())
    engine = Notebook(code="second")
    states, _ = run(tmp_path, engine)
    assert sorted(engine.started) == sorted([*(stage.name for stage in pipeline_components()), "notify"])
    assert State.REUSED not in states.values()
    versions = {
        HostEngine({}).version({"command": ["python", "-m", "components", stage.name]})
        for stage in pipeline_components()
    }
    assert len(versions) == len(pipeline_components())


def test_an_output_that_was_lost_is_made_again(tmp_path: Path) -> None:
    run(tmp_path, Notebook())
    (tmp_path / "pretrain-sorter" / "sorter" / artifacts.MANIFEST).unlink()
    engine = Notebook()
    run(tmp_path, engine)
    assert engine.started[0] == "pretrain_sorter"


def test_an_interrupted_run_ends_its_step_and_starts_no_other(tmp_path: Path) -> None:
    engine, former = Interrupted(), signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, engine)
    finally:
        signal.signal(signal.SIGINT, former)
    assert engine.started == ["prepare_dataset"]
    assert engine.killed.is_set()


def test_an_argument_that_the_pipeline_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no argument 'revison'; it has repository, revision"):
        Run(TEXT, tmp_path, Notebook(), {"revison": "a"}).start()


def test_the_host_engine_kills_what_takes_too_long_with_all_its_children(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(tmp_path / 'child')!r}).write_text(str(child.pid)); print('began', flush=True)\n"
        "time.sleep(60)"
    )
    code = HostEngine({}).run({}, ["python", "-c", program], 4.0, tmp_path / "log.txt")
    assert code == -signal.SIGKILL
    assert (tmp_path / "log.txt").read_text() == "began\n"
    # What was killed with its parent may still be on its way out; left alone it would sleep for a minute.
    state = Path("/proc") / (tmp_path / "child").read_text() / "stat"
    end = time.monotonic() + 20.0
    while _runs(state):
        assert time.monotonic() < end, "the child outlived its parent"
        time.sleep(0.01)


def test_the_host_engine_ends_what_it_runs_when_it_is_stopped(tmp_path: Path) -> None:
    engine = HostEngine({})
    log = tmp_path / "log.txt"

    def stop_when_it_runs() -> None:
        while not log.is_file() or not log.read_text():
            time.sleep(0.01)
        engine.stop()

    threading.Thread(target=stop_when_it_runs, daemon=True).start()
    program = "import time; print('began', flush=True); time.sleep(60)"
    assert engine.run({}, ["python", "-c", program], 90.0, log) == -signal.SIGKILL
    engine.stop()  # of nothing


def _runs(state: Path) -> bool:
    try:
        return state.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_whole_default_pipeline_runs_on_the_host(tmp_path: Path) -> None:
    from tiny import tiny_values

    text = kubeflow.compile_pipeline(tiny_values(), LOCAL, "a" * 40)
    environment = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db", "OMP_NUM_THREADS": "1"}
    states = Run(text, tmp_path / "run", HostEngine(environment), sleep=lambda seconds: None).start()
    assert set(states.values()) == {State.SUCCEEDED}, _logs(tmp_path)
    report = json.loads((tmp_path / "run/evaluate/metrics/metrics.json").read_text())
    assert report["images"] == tiny_values()["prepare_dataset"]["corpus"]["test"]
    registration = json.loads((tmp_path / "run/register-model/registration/registration.json").read_text())
    assert registration["version"] == 1


def _logs(folder: Path) -> str:
    return "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("run/*/log.txt")))
