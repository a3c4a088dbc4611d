"""Assessment of a registered version: check its tags, then compare its files with the champion's."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from bifocal.datasets import read_dataset
from bifocal.evaluation.rank_tables import training_hashes
from bifocal.features import open_features
from bifocal.promotion.acceptance import Assessment, Criteria, assess
from bifocal.promotion.checks import Check
from bifocal.promotion.exported_model import ExportedModel
from bifocal.promotion.looks import Look
from runtime.artifacts import artifact_hash
from runtime.mlflow.aliases import VETO, read_looks
from runtime.mlflow.registry import RELEASE_TAG, RegisteredVersion


def registry_checks(tags: Mapping[str, str], allow_dirty: bool) -> list[Check]:
    """Return the checks that need no evaluation: vetoes, and the commit of the code."""
    veto, commit = tags.get(VETO, ""), tags.get("git_commit", "unknown")
    no_commit = not allow_dirty and (commit == "unknown" or commit.endswith("-dirty"))
    return [
        Check("veto", f"the version was {veto}; only a forced promotion brings it back" if veto else ""),
        Check("commit", f"no commit holds the code of the model ({commit}): commit, train again" if no_commit else ""),
    ]


def release_check(candidate: RegisteredVersion, tags: Mapping[str, str], champion: Mapping[str, str]) -> Check:
    """Check that the candidate has a release if the champion has one: a service cannot load a model without it."""
    missing = RELEASE_TAG in champion and RELEASE_TAG not in tags
    reason = f"version {candidate.number} has no release, the champion has one: run python -m pipelines release"
    return Check("release", reason if missing else "")


def assess_versions(
    candidate: RegisteredVersion,
    champion: RegisteredVersion | None,
    tags: Mapping[str, str],
    criteria: Criteria,
    *artifacts: Path,
) -> Assessment:
    """Rank the candidate, with these ``tags``, and the champion on the artifacts ``dataset`` and ``features``."""
    tables, features = read_dataset(artifacts[0]), artifacts[1]
    models: list[ExportedModel] = []
    with TemporaryDirectory() as folder:
        for version in filter(None, (candidate, champion)):
            try:
                models.append(ExportedModel.read(*version.download(Path(folder) / str(version.number))))
            except ValueError as error:
                return Assessment([Check("files", f"version {version.number} cannot be evaluated: {error}")])
        # The test images may be newer than the model: leakage is found by the images that it was trained on.
        if not models[0].trained_on or models[0].trained_on != training_hashes(tables):
            _check_artifact("dataset", artifacts[0], tags)
        store = None
        if not all(model.reads_images for model in models):
            _check_artifact("features", features, tags)
            store = open_features(features, tables)
        return assess(
            tables,
            models,
            [None if model.reads_images else store for model in models],
            criteria,
            names=(str(candidate.number), str(champion.number if champion else "")),
            looks=[Look(**look) for look in read_looks(candidate.model)],
        )


def _check_artifact(name: str, path: Path, tags: Mapping[str, str]) -> None:
    actual, expected = artifact_hash(path), tags.get(f"hash.{name}", "none")
    if actual != expected:
        raise ValueError(
            f"{path} has the hash {actual[:12]}, the candidate's {name} has {expected[:12]}: give the artifacts that "
            "the candidate was trained on"
        )
