"""Local runs: the graph with a fake engine, then the small pipeline with real stages."""

import re
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from pipelines.kubeflow import resources
from pipelines.local import runner
from pipelines.local.engine import Exit, HostEngine, Pod
from pipelines.local.runner import LocalRun
from pipelines.local.task import TaskState
from tests.pipelines.compiled import REVISION, STAGES, VALUES, compile_text
from tests.pipelines.local.fake_engine import FakeEngine

STEP = resources.load().default
STEPS = [*(stage.name for stage in STAGES), "release", "promote"]
TASKS = [name.replace("_", "-") for name in STEPS]


@dataclass
class InterruptedEngine(FakeEngine):
    """Sends Ctrl-C while the first step runs; only ``stop`` ends that step."""

    killed: threading.Event = field(default_factory=threading.Event)

    def run(self, pod: Pod) -> Exit:
        self.started.append(pod.command[3])
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return Exit(-signal.SIGKILL) if self.killed.wait(20.0) else super().run(pod)

    def stop(self) -> None:
        self.killed.set()


def execute(
    folder: Path, engine: FakeEngine, parallel: int = 1, revision: str = REVISION
) -> tuple[dict[str, TaskState], list[float]]:
    """Run the default pipeline; return the final states and the delays before retries."""
    delays: list[float] = []
    text = compile_text(push=False).replace(REVISION, revision)
    return LocalRun(text, folder, engine, parallel=parallel, sleep=delays.append).execute(), delays


@pytest.mark.parametrize("parallel", [1, 3])
def test_every_step_runs_once_after_the_writers_of_its_inputs(
    tmp_path: Path, parallel: int
) -> None:
    engine = FakeEngine()
    states, _ = execute(tmp_path, engine, parallel)
    assert set(states) == {*TASKS, "fingerprint", "notify"}
    assert set(states.values()) == {TaskState.COMPLETE}
    assert sorted(engine.started) == sorted([*STEPS, "fingerprint", "notify"])
    for stage in STAGES:
        for name in stage.used_inputs(VALUES):
            writer = next(other.name for other in STAGES if name in other.outputs)
            assert engine.started.index(writer) < engine.started.index(stage.name)
            entry = engine.messages[stage.name]["inputs"]["artifacts"][name]["artifacts"][0]
            assert f"/{writer.replace('_', '-')}/" in entry["uri"]
            assert entry["metadata"].keys() == {"sha256"}


def test_a_failed_step_omits_its_dependents_and_is_reported_to_notify(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = FakeEngine({"vectorize_captions": 99})
    states, delays = execute(tmp_path, engine)
    assert states["vectorize-captions"] is TaskState.FAILED
    dependents = {
        "train-embedding",
        "evaluate",
        "export-onnx",
        "register-model",
        "embed-collection",
        "build-index",
        "release",
        "promote",
    }
    assert {name for name, state in states.items() if state is TaskState.OMITTED} == dependents
    assert not dependents & {name.replace("_", "-") for name in engine.started}
    assert engine.started.count("vectorize_captions") == 1 + STEP.retries
    first = float(STEP.retry_delay)
    assert delays == [first * STEP.retry_factor**retry for retry in range(STEP.retries)]
    status = engine.messages["notify"]["inputs"]["parameterValues"]["status"]
    assert status.keys() == {"state", "error", "pipelineJobResourceName", "pipelineTaskName"}
    assert status["state"] == "FAILED"
    # The whole error of the last attempt.
    assert (
        capsys.readouterr().out.count(
            f"exit code 3: error: no memory\n{98 - STEP.retries} failures left"
        )
        == 1
    )


def test_a_step_that_succeeds_on_its_last_retry_does_not_fail_the_run(tmp_path: Path) -> None:
    engine = FakeEngine({"evaluate": STEP.retries})
    states, _ = execute(tmp_path, engine)
    assert states["evaluate"] is TaskState.COMPLETE
    assert engine.messages["notify"]["inputs"]["parameterValues"]["status"]["state"] == "COMPLETE"


def test_a_second_run_continues_after_the_last_finished_step(tmp_path: Path) -> None:
    execute(tmp_path, FakeEngine({"train_embedding": 99}))
    engine = FakeEngine()
    states, _ = execute(tmp_path, engine, revision="b" * 40)  # another commit with the same code
    again = [
        "fingerprint",
        "train_embedding",
        "evaluate",
        "export_onnx",
        "register_model",
        "promote",
        "notify",
    ]
    again += ["embed_collection", "build_index", "release"]
    assert sorted(engine.started) == sorted(again)
    assert states["prepare-dataset"] is TaskState.CACHED
    assert set(states.values()) == {TaskState.COMPLETE, TaskState.CACHED}


def test_a_second_run_takes_every_stage_from_the_cache(tmp_path: Path) -> None:
    execute(tmp_path, FakeEngine())
    engine = FakeEngine()
    states, _ = execute(tmp_path, engine)
    assert sorted(engine.started) == [
        "fingerprint",
        "notify",
        "promote",
        "register_model",
        "release",
    ]
    assert states["evaluate"] is TaskState.CACHED  # also its scores, which have no file


def test_another_image_runs_every_step_again(tmp_path: Path) -> None:
    execute(tmp_path, FakeEngine())
    engine = FakeEngine(digest="second")
    states, _ = execute(tmp_path, engine)
    assert sorted(engine.started) == sorted([*STEPS, "fingerprint", "notify"])
    assert TaskState.CACHED not in states.values()


def test_interrupt_kills_the_running_step_and_starts_no_other(tmp_path: Path) -> None:
    engine, previous = InterruptedEngine(), signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            execute(tmp_path, engine)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert len(engine.started) == 1
    assert engine.killed.is_set()


def test_interrupt_before_a_task_is_recorded_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Engine(FakeEngine):
        running, killed = threading.Event(), threading.Event()

        def run(self, pod: Pod) -> Exit:
            self.running.set()
            assert self.killed.wait(20.0), "the step was not killed"
            return Exit(-signal.SIGKILL)

        def stop(self) -> None:
            self.killed.set()

    class Pool(ThreadPoolExecutor):
        def submit(self, *arguments: Any) -> Future[Any]:
            future = super().submit(*arguments)
            if threading.current_thread() is threading.main_thread():
                assert Engine.running.wait(20.0), "no step was started"
                raise KeyboardInterrupt
            return future

    monkeypatch.setattr(runner, "ThreadPoolExecutor", Pool)
    with pytest.raises(KeyboardInterrupt):
        execute(tmp_path, Engine())
    assert Engine.killed.is_set()


@pytest.mark.parametrize("text", ["{", '{"a": 1}'])
def test_an_output_that_kubeflow_rejects_fails_the_task(tmp_path: Path, text: str) -> None:
    class Engine(FakeEngine):
        def run(self, pod: Pod) -> Exit:
            ended = super().run(pod)
            if pod.command[3] == "prepare_dataset":
                (pod.folder / "executor_output.json").write_text(text)
            return ended

    states, _ = execute(tmp_path, Engine())
    assert states["prepare-dataset"] is TaskState.FAILED
    assert states["extract-features"] is TaskState.OMITTED


TOO_MUCH = """
import click, os, signal, time
from runtime.process import run

def grow():
    block = b"x" * 500_000_000
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)

run(click.Command("grow", callback=grow), "grow")
"""


@pytest.mark.slow
def test_a_step_that_lacks_memory_is_named_with_its_peak_and_its_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Engine(FakeEngine):
        def run(self, pod: Pod) -> Exit:
            if pod.command[3] != "evaluate":
                return super().run(pod)
            return HostEngine({}).run(
                replace(pod, command=["python", "-c", TOO_MUCH], timeout=60.0)
            )

    states, _ = execute(tmp_path, Engine())
    assert states["evaluate"] is TaskState.FAILED
    expected = (
        r"evaluate failed after \d attempts: killed \(exit code -9\), mostly because memory is "
        r"short; memory: "
    )
    found = re.search(expected + r"peak (\S+) GiB, limit (\S+) GiB", capsys.readouterr().out)
    assert found is not None
    assert 0.45 < float(found[1]) < float(found[2])


def test_attempts_without_an_output_are_deleted_and_others_are_kept(tmp_path: Path) -> None:
    execute(tmp_path, FakeEngine({"evaluate": 2}))
    (tmp_path / "evaluate" / "attempts" / "killed-0").mkdir()
    execute(tmp_path, FakeEngine(digest="second"))
    assert len([*(tmp_path / "evaluate" / "attempts").iterdir()]) == 2
    assert (tmp_path / "evaluate" / "metrics").readlink().parent.name.endswith("-0")


def test_a_second_run_in_the_folder_of_a_running_one_is_refused(tmp_path: Path) -> None:
    with (
        FileLock(tmp_path / ".lock"),
        pytest.raises(ValueError, match=r"another process runs in .*--folder"),
    ):
        execute(tmp_path, FakeEngine())


def test_an_unknown_argument_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no argument 'revison'; it has repository, revision"):
        LocalRun(compile_text(push=False), tmp_path, FakeEngine(), {"revison": "a"}).execute()
