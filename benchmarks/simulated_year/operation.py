"""The work of an operator in production: train, decide, embed new images, release, and monitor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from bifocal.monitoring import Artifacts, Monitor, Thresholds, Week
from components.catalog import final_component
from components.cluster.promote import PromotionDecision, promote
from pipelines.app.run_folder import ARTIFACTS, shipped_file
from pipelines.app.stages import run_stages, stages_of_run
from pipelines.app.training.recipe import demo_section, fit_head
from pipelines.policies import load_promotion, load_thresholds
from runtime import parameters
from runtime.artifacts import artifact_hash
from runtime.job import Workspace, stage_job
from runtime.mlflow.releases import find_version, log_release, read_digest
from runtime.mlflow.runs import log_monitoring
from runtime.stage import run_stage

SEARCH = ("embed_collection", "build_index")
PARTS = ("onnx", "collection", "index", "embedding")
DAYS = 7
POLICY = load_promotion().model_copy(
    update={
        # The captions of the archive have no boxes, and a benchmark may run before a commit.
        "max_drops": {
            name: drop for name, drop in load_promotion().max_drops.items() if name != "pointing"
        },
        "allow_dirty": True,
    }
)


@dataclass(frozen=True)
class Model:
    """A run folder with a trained model, and its number in the registry."""

    folder: Path
    values: Mapping[str, Any]
    version: int

    @property
    def artifacts(self) -> Path:
        """Folder of the artifacts."""
        return self.folder / ARTIFACTS

    def decide(self, *, only: bool) -> PromotionDecision:
        """Decide on the promotion by the policy; with ``only``, move no alias."""
        dataset, features = self.artifacts / "dataset", self.artifacts / "features"
        return promote(POLICY, dataset, features, number=self.version, decide_only=only)

    def refresh(self) -> str:
        """Embed the new images, build the index, and make both the release of the version; return
        its hash.

        Vectors of images that the collection has already are taken over.

        Raises:
            OSError: the registry does not answer.
        """
        previous = self.artifacts / "collection"
        known = {"previous": str(previous)} if previous.is_dir() else {}
        values = parameters.merge(self.values, {"embed_collection": known})
        workspace = Workspace(self.artifacts.as_posix())
        for stage in stages_of_run():
            if stage.name in SEARCH:
                run_stage(stage_job(stage, values, workspace))
        onnx, collection, index, embedding = (self.artifacts / name for name in PARTS)
        version = find_version(POLICY.model, artifact_hash(onnx))
        log_release(version, onnx, collection, index, embedding)
        return read_digest(version)


def train(folder: Path, images: Path, table: Path, settings: Mapping[str, Any]) -> Model:
    """Train, evaluate, export and register a model, by the stages of ``bifocal train``.

    Args:
        folder: of the run.
        images: folder of the archive.
        table: captions.
        settings: overlay of the parameters.
    """
    values = parameters.load(shipped_file("params.yaml"), [shipped_file("recipes/own/images.yaml")])
    corpus = {"root": str(images), "captions": str(table)}
    overlay: dict[str, Any] = {
        "prepare_dataset": {"corpus": corpus},
        "extract_features": demo_section(),
        "embed_collection": {"source": str(images)},
    }
    values, _ = fit_head(parameters.merge(parameters.merge(values, overlay), settings), values)
    run_stages(folder, values, [stage for stage in stages_of_run() if stage.name not in SEARCH])
    register = final_component(values["pipeline"])
    registered = run_stage(
        stage_job(register, values, Workspace((folder / ARTIFACTS).as_posix()))
    ).metrics
    return Model(folder, values, int(registered["version"]))


def monitor(model: Model, folder: Path, queries: Sequence[Path]) -> Monitor:
    """Return the monitor of a model with the default thresholds."""
    folder.mkdir(parents=True, exist_ok=True)
    artifacts = Artifacts(*(model.artifacts / name for name in PARTS[:3]))
    return Monitor(artifacts, folder, Thresholds.of(load_thresholds().model_dump()), queries)


def look(model: Model, folder: Path, queries: Path, day: date) -> tuple[Week, bool]:
    """Compare the week up to ``day`` with the reference; return the result, and whether MLflow has
    it."""
    watch = monitor(model, folder, [queries])
    week = watch.compare(day, DAYS)
    try:
        log_monitoring(week, watch.reference(), watch.page(day))
    except OSError:
        return week, False
    return week, True
