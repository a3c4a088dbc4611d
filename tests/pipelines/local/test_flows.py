"""The flows retrain, refresh and monitor: which steps run, with a fake engine."""

import json
from pathlib import Path

import pytest

from pipelines.kubeflow.flows import SEARCH, FlowName, stages_of
from pipelines.local.runner import LocalRun
from pipelines.local.task import TaskState
from tests.pipelines.compiled import STAGES, VALUES, compile_text
from tests.pipelines.local.fake_engine import FakeEngine

TRAINING = {stage.name for stage in STAGES} - {"prepare_dataset", *SEARCH}


def execute(
    flow: FlowName, folder: Path, **parameters: str
) -> tuple[FakeEngine, dict[str, TaskState]]:
    """Run a flow; return its engine and the final states."""
    engine = FakeEngine(parameters=parameters)
    text = compile_text(push=False, flow=flow)
    return engine, LocalRun(text, folder, engine, sleep=lambda seconds: None).execute()


def state_of_line(engine: FakeEngine) -> str:
    """Return the state that the exit task gets."""
    state: str = engine.messages["notify"]["inputs"]["parameterValues"]["status"]["state"]
    return state


def test_data_without_changes_are_not_trained_on(tmp_path: Path) -> None:
    engine, states = execute("retrain", tmp_path, changed="false")
    assert engine.started == ["fingerprint", "prepare_dataset", "find_changes", "notify"]
    assert states["if-changed"] is TaskState.CANCELED
    assert state_of_line(engine) == "COMPLETE"


def test_a_refused_model_embeds_nothing(tmp_path: Path) -> None:
    engine, states = execute("retrain", tmp_path, changed="true", accepted="false")
    assert set(engine.started) == {
        *TRAINING,
        "fingerprint",
        "prepare_dataset",
        "find_changes",
        "promote",
        "notify",
    }
    assert engine.started.count("promote") == 1
    assert (
        engine.messages["promote"]["inputs"]["parameterValues"]["parameters"].count(
            '"decide_only":true'
        )
        == 1
    )
    assert states["if-accepted"] is TaskState.CANCELED
    assert state_of_line(engine) == "COMPLETE"


def test_an_accepted_model_is_released_and_then_promoted_and_a_failure_is_continued(
    tmp_path: Path,
) -> None:
    engine = FakeEngine({"release": 99}, {"changed": "true", "accepted": "true"})
    text = compile_text(push=False, flow="retrain")
    states = LocalRun(text, tmp_path, engine, sleep=lambda seconds: None).execute()
    assert states["release"] is TaskState.FAILED
    assert states["promote-2"] is TaskState.OMITTED
    assert engine.started.count("promote") == 1
    assert state_of_line(engine) == "FAILED"
    engine, states = execute("retrain", tmp_path, changed="true", accepted="true")
    assert engine.started[-3:] == ["release", "promote", "notify"]
    assert (
        engine.messages["promote"]["inputs"]["parameterValues"]["parameters"].count(
            '"decide_only":false'
        )
        == 1
    )
    assert {"train_embedding", *SEARCH} <= {
        name.replace("-", "_") for name, state in states.items() if state == "CACHED"
    }


def test_refresh_embeds_with_the_released_model_and_takes_over_its_vectors(tmp_path: Path) -> None:
    engine, _ = execute("refresh", tmp_path, version="3", release="abc")
    steps = ["find_release", "fetch_release", "prepare_dataset", *SEARCH, "release"]
    assert sorted(engine.started) == sorted(["fingerprint", *steps, "notify"])
    given = {
        step: {
            name: entry["artifacts"][0]["uri"].split("/")[-4]
            for name, entry in inputs["artifacts"].items()
        }
        for step in (*SEARCH, "release")
        for inputs in [engine.messages[step]["inputs"]]
    }
    fetched = "fetch-release"
    assert given["embed_collection"] == {
        "dataset": "prepare-dataset",
        "onnx": fetched,
        "previous": fetched,
    }
    assert given["build_index"]["embedding"] == given["build_index"]["onnx"] == fetched
    assert given["release"]["registration"] == fetched
    assert given["release"]["collection"] == "embed-collection"
    engine, _ = execute("refresh", tmp_path, version="3", release="abc")
    assert sorted(engine.started) == ["find_release", "fingerprint", "notify", "release"]
    engine, _ = execute("refresh", tmp_path, version="3", release="def")
    assert {"fetch_release", "embed_collection"} <= set(engine.started)


@pytest.mark.parametrize("flow", ["train", "retrain"])
def test_a_new_model_gets_the_collection_of_the_champion_for_images_of_its_own(
    tmp_path: Path, flow: FlowName
) -> None:
    section = {**VALUES["embed_collection"], "source": "s3://bucket/photos"}
    text = compile_text({**VALUES, "embed_collection": section}, push=False, flow=flow)
    found = {"changed": "true", "accepted": "true", "version": "", "release": ""}
    engine = FakeEngine(parameters=found)
    LocalRun(text, tmp_path, engine, sleep=lambda seconds: None).execute()
    given = engine.messages["embed_collection"]["inputs"]["artifacts"]
    producers = {name: entry["artifacts"][0]["uri"].split("/")[-4] for name, entry in given.items()}
    assert producers["previous"] == "fetch-release"
    assert producers["onnx"] == "export-onnx"
    parameters = engine.messages["find_release"]["inputs"]["parameterValues"]["parameters"]
    assert '"optional":true' in parameters
    release = engine.messages["release"]["inputs"]["artifacts"]
    assert release["onnx"]["artifacts"][0]["uri"].split("/")[-4] == "export-onnx"


def test_monitor_reads_the_release_of_the_champion(tmp_path: Path) -> None:
    engine, _ = execute("monitor", tmp_path, version="3", release="abc")
    assert sorted(engine.started) == [
        "fetch_release",
        "find_release",
        "fingerprint",
        "monitor",
        "notify",
    ]
    assert set(engine.messages["monitor"]["inputs"]["artifacts"]) == {"onnx", "collection", "index"}
    assert "monitoring" in engine.messages["monitor"]["outputs"]["artifacts"]


def test_the_step_clean_lists_by_default(tmp_path: Path) -> None:
    engine, _ = execute("clean", tmp_path)
    assert engine.started == ["fingerprint", "clean", "notify"]
    given = engine.messages["clean"]["inputs"]["parameterValues"]["parameters"]
    assert '"delete":false' in given
    assert '"model":"bifocal"' in given


def test_a_run_without_the_cache_runs_every_step_again(tmp_path: Path) -> None:
    for cache, expected in ((True, True), (False, True), (True, False)):
        engine = FakeEngine()
        text = compile_text(push=False, cache=cache)
        LocalRun(text, tmp_path, engine, sleep=lambda seconds: None).execute()
        assert ("train_embedding" in engine.started) is expected


def test_an_accepted_model_is_released_and_not_promoted_if_nothing_is_to_be_promoted(
    tmp_path: Path,
) -> None:
    engine = FakeEngine(parameters={"changed": "true", "accepted": "true"})
    text = compile_text(push=False, flow="retrain", promote=False)
    LocalRun(text, tmp_path, engine, sleep=lambda seconds: None).execute()
    assert engine.started[-2:] == ["release", "notify"]
    assert engine.started.count("promote") == 1
    assert (
        engine.messages["promote"]["inputs"]["parameterValues"]["parameters"].count(
            '"decide_only":true'
        )
        == 1
    )
    assert (
        '"promote":false'
        in engine.messages["find_changes"]["inputs"]["parameterValues"]["parameters"]
    )


@pytest.mark.parametrize(("verdict", "promotions"), [("promote", 2), ("withdraw", 1), ("wait", 1)])
def test_a_canary_decides_between_release_and_promotion(
    tmp_path: Path, verdict: str, promotions: int
) -> None:
    engine = FakeEngine(parameters={"changed": "true", "accepted": "true", "verdict": verdict})
    text = compile_text(push=False, flow="retrain", canary=True)
    LocalRun(text, tmp_path, engine, sleep=lambda seconds: None).execute()
    assert engine.started.index("release") < engine.started.index("canary")
    assert engine.started.count("promote") == promotions
    given = json.loads(engine.messages["canary"]["inputs"]["parameterValues"]["parameters"])[
        "canary"
    ]
    assert (given["hours"], given["champion"], given["rule"]["searches"]) == (72, "champion", 2000)


def test_the_previous_version_is_refreshed_before_a_rollback(tmp_path: Path) -> None:
    engine, _ = execute("refresh-previous", tmp_path, version="2", release="abc")
    assert (
        '"alias":"previous"'
        in engine.messages["find_release"]["inputs"]["parameterValues"]["parameters"]
    )
    assert {"embed_collection", "build_index", "release"} <= set(engine.started)


def test_a_pipeline_without_a_collection_has_no_refresh() -> None:
    with pytest.raises(
        ValueError, match="flow refresh needs a collection, but the pipeline ranking_head has none"
    ):
        stages_of("refresh", {**VALUES, "pipeline": "ranking_head"})
