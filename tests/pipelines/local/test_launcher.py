"""Local runs follow Kubeflow's driver and launcher: messages, own files, uploads, states, cache keys, variables."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from pipelines.local.engine import Pod
from pipelines.local.metadata import State
from pipelines.local.runner import LocalRun
from tests.pipelines.local.toy_pipeline import Step, ToyEngine, make, pipeline_text


def run(folder: Path, engine: ToyEngine, **options: bool) -> dict[str, State]:
    return LocalRun(pipeline_text(**options), folder, engine, sleep=lambda seconds: None).execute()


def objects(folder: Path) -> list[str]:
    """Names of the objects without the parts that differ between runs: task and file."""
    paths = (path.relative_to(folder / "objects").parts for path in (folder / "objects").rglob("*") if path.is_file())
    return sorted("/".join((parts[4], *parts[6:])) for parts in paths)


def failing(*codes: int) -> Step:
    """Return a step that ends with each of the codes in turn, and then makes its outputs; -1 is a deleted pod."""
    left = list(codes)

    def step(message: dict[str, Any], pod: Pod) -> int:
        made = make(message, pod)
        return left.pop(0) if left else made

    return step


def status(engine: ToyEngine) -> dict[str, Any]:
    found: dict[str, Any] = engine.messages["notify"][-1]["inputs"]["parameterValues"]["status"]
    return found


def test_the_message_has_what_the_driver_and_the_launcher_put_there(tmp_path: Path) -> None:
    engine = ToyEngine({"make": failing(1)})
    run(tmp_path, engine)
    first, second = engine.messages["make"]
    outputs = second["outputs"]["artifacts"]
    assert set(outputs) == {"toys", "executor-logs"}
    assert outputs["toys"]["artifacts"][0]["type"] == {"schemaTitle": "system.Dataset", "schemaVersion": "0.0.1"}
    assert outputs["toys"]["artifacts"][0]["uri"].startswith("minio://mlpipeline/v2/artifacts/toys/")
    assert "metadata" not in outputs["toys"]["artifacts"][0]
    # The output keeps its address in a retry, the log has one per attempt.
    assert first["outputs"]["artifacts"]["toys"]["artifacts"][0]["uri"] == outputs["toys"]["artifacts"][0]["uri"]
    assert outputs["executor-logs"]["artifacts"][0]["uri"].endswith("/executor-logs-1")
    (used,) = engine.messages["use"]
    (toys,) = used["inputs"]["artifacts"]["toys"]["artifacts"]
    assert toys["name"].isdecimal()
    assert toys["metadata"]["display_name"] == "toys"
    assert used["inputs"]["parameterValues"] == {"digest": "d1"}


def test_a_pod_has_its_declared_inputs_alone(tmp_path: Path) -> None:
    found: list[list[str]] = []

    def use(message: dict[str, Any], pod: Pod) -> int:
        found.append([path.name for path in pod.folder.rglob("*") if path.is_file()])
        return 0

    run(tmp_path, ToyEngine({"use": use}))
    assert found == [["toy.txt"]]
    assert not list((tmp_path / "pods").iterdir())


def test_declared_outputs_are_uploaded_after_a_success_alone(tmp_path: Path) -> None:
    run(tmp_path / "good", ToyEngine())
    assert objects(tmp_path / "good") == [
        "make/executor-logs-0", "make/toys/toy.txt", "notify/executor-logs-0", "use/executor-logs-0",
    ]  # fmt: skip
    states = run(tmp_path / "bad", ToyEngine({"make": failing(1, 1, 1)}))
    assert states == {"make": State.FAILED, "use": State.OMITTED, "notify": State.COMPLETE}
    assert Counter(objects(tmp_path / "bad")) == Counter(
        [*(f"make/executor-logs-{attempt}" for attempt in range(3)), "notify/executor-logs-0"]
    )


@pytest.mark.parametrize(
    "text", ['{"artifacts": {"toys": {"artifacts": [{"metadata": {"mean": NaN}}]}}}', "{", '{"a": 1}']
)
def test_an_executor_output_that_protojson_rejects_fails_the_task(tmp_path: Path, text: str) -> None:
    def step(message: dict[str, Any], pod: Pod) -> int:
        Path(message["outputs"]["outputFile"]).write_text(text)
        return make(message, pod)

    states = run(tmp_path, ToyEngine({"make": step}))
    assert states["make"] is State.FAILED
    assert not [name for name in objects(tmp_path) if "toys" in name]


def test_metadata_of_the_executor_output_reaches_the_next_task(tmp_path: Path) -> None:
    def step(message: dict[str, Any], pod: Pod) -> int:
        output = {
            "artifacts": {"toys": {"artifacts": [{"metadata": {"count": 2}}]}},
            "parameterValues": {"digest": "d2"},
        }
        Path(message["outputs"]["outputFile"]).write_text(json.dumps(output))
        return make(message, pod)

    engine = ToyEngine({"make": step})
    run(tmp_path, engine)
    (used,) = engine.messages["use"]
    assert used["inputs"]["artifacts"]["toys"]["artifacts"][0]["metadata"]["count"] == 2
    assert used["inputs"]["parameterValues"] == {"digest": "d2"}  # it replaces the file


def test_the_cache_key_holds_ids_of_artifacts(tmp_path: Path) -> None:
    run(tmp_path, ToyEngine())
    engine = ToyEngine()
    # Outputs from the cache keep their ids, so all tasks behind them are cached too.
    assert run(tmp_path, engine) == {"make": State.CACHED, "use": State.CACHED, "notify": State.COMPLETE}
    # The same bytes of a step that ran again have another id.
    assert run(tmp_path, engine, first_cached=False) == dict.fromkeys(("make", "use", "notify"), State.COMPLETE)


@pytest.mark.parametrize(
    ("codes", "options", "state"),
    [
        ([], {"both_cached": False}, "COMPLETE"),
        ([1, 1, 1], {"both_cached": False}, "FAILED"),
        # The launcher of the killed pod publishes nothing.
        ([-1], {"both_cached": False}, "RUNNING"),
        # Nobody updates the state of the graph after a task from the cache.
        ([], {}, "RUNNING"),
        ([1], {"first_cached": False}, "COMPLETE"),
    ],
)
def test_the_final_status_is_that_of_the_backend(
    tmp_path: Path, codes: list[int], options: dict[str, bool], state: str
) -> None:
    if not options:
        run(tmp_path, ToyEngine())
    engine = ToyEngine({"make": failing(*codes)})
    local = LocalRun(pipeline_text(**options), tmp_path, engine, sleep=lambda seconds: None)
    local.execute()
    name = local.driver.run.name
    expected = {"state": state, "error": {}, "pipelineJobResourceName": name, "pipelineTaskName": "line"}
    assert status(engine) == expected


def test_a_deleted_pod_is_not_retried(tmp_path: Path) -> None:
    engine = ToyEngine({"make": failing(-1)})
    assert run(tmp_path, engine)["make"] is State.FAILED
    assert len(engine.calls["make"]) == 1


def test_variables_from_fields_of_the_pod(tmp_path: Path) -> None:
    engine = ToyEngine({"make": failing(1)})
    local = LocalRun(pipeline_text(), tmp_path, engine, sleep=lambda seconds: None, run_id="run-1")
    local.execute()
    first, second = engine.calls["make"]
    assert first.environment["KFP_RUN_ID"] == second.environment["KFP_RUN_ID"] == "run-1"
    assert [pod.environment["KFP_RETRY_INDEX"] for pod in (first, second)] == ["0", "1"]
    assert first.environment["KFP_POD_UID"] != second.environment["KFP_POD_UID"]
    assert "KFP_RETRY_INDEX" not in engine.calls["use"][0].environment


def test_a_second_run_in_the_folder_of_a_running_one_is_refused(tmp_path: Path) -> None:
    with (
        FileLock(tmp_path / ".lock"),
        pytest.raises(ValueError, match=r"another process runs a pipeline in .*--folder"),
    ):
        run(tmp_path, ToyEngine())
    assert run(tmp_path, ToyEngine())["use"] is State.COMPLETE


def test_pods_of_a_killed_run_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "pods" / "make-0").mkdir(parents=True)
    run(tmp_path, ToyEngine())
    assert not list((tmp_path / "pods").iterdir())
