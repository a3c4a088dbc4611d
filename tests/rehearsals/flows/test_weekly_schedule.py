"""A weekly schedule on a corpus in S3: which steps run when nothing changed, and when one image is
new.

``make rehearse-schedule`` runs it with every stage, up to the promotion.
"""

from pathlib import Path

from components.catalog import pipeline_components
from pipelines.local.runner import LocalRun
from pipelines.local.task import TaskState
from runtime import parameters
from tests.flickr8k_bucket import upload_scenes
from tests.pipelines.compiled import REVISION, ROOT, SMALL_VALUES, compile_text
from tests.pipelines.local.reading_engine import ReadingEngine
from tests.rehearsals.flows.corpus import CORPUS, cached

CACHED_STAGES = {
    stage.name.replace("_", "-") for stage in pipeline_components() if not stage.side_effects
}


def weekly_run(folder: Path, revision: str = REVISION) -> dict[str, TaskState]:
    """Run the schedule once; return the state of each task."""
    values = parameters.merge(SMALL_VALUES, {"prepare_dataset": {"corpus": CORPUS}})
    text = compile_text(values, push=False).replace(REVISION, revision)
    return LocalRun(text, folder, ReadingEngine(), {"repository": str(ROOT)}).execute()


def test_a_schedule_trains_again_exactly_when_the_corpus_changed(
    s3: None, mlflow_store: str, tmp_path: Path
) -> None:
    upload_scenes(tmp_path / "scenes", train=8, val=2, test=2)
    assert set(weekly_run(tmp_path / "cluster").values()) == {TaskState.COMPLETE}

    upload_scenes(tmp_path / "again", train=8, val=2, test=2)  # the same bytes, with a new date
    unchanged = weekly_run(
        tmp_path / "cluster", revision=REVISION[::-1]
    )  # another commit, which changed no stage
    assert cached(unchanged) == CACHED_STAGES

    upload_scenes(tmp_path / "more", train=9, val=2, test=2)
    changed = weekly_run(tmp_path / "cluster")
    assert cached(changed) == {
        "pretrain-sorter"
    }  # the only stage that does not depend on the dataset
    assert changed["train-embedding"] is TaskState.COMPLETE
