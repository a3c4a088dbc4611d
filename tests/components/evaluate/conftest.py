"""Complete artifacts for the stage evaluate."""

import json
from pathlib import Path
from typing import Any

import pytest

from components.evaluate.run import run
from components.evaluate.spec import EvaluateParams
from runtime.artifacts import commit, open_partial
from tests.bifocal.evaluation.small import INPUTS, write_inputs

EVALUATORS = (
    {"name": "Retrieval", "ks": [1, 5], "max_k": 10},
    "PointingGame",
    "PhraseLocalization",
    "ObjectLocalization",
    "SemanticRetrieval",
    "TextModifiers",
    "SimilarImages",
    "DataQuality",
)
PARAMS: dict[str, Any] = {
    "seed": 1,
    "split": "test",
    "evaluators": EVALUATORS,
    "bootstrap_resamples": 100,
    "report": {"queries": 2, "duplicate_check": 100},
}


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Complete artifacts, as the stages before evaluate leave them."""
    folder = tmp_path_factory.mktemp("artifacts")
    partial = {name: open_partial(folder / name, {}) for name in INPUTS}
    write_inputs(partial)
    for name in INPUTS:
        manifest = {
            "component": f"a stage of {name}",
            "code": "c0de",
            "inputs": {},
            "parameters": {"seed": 1},
        }
        commit(partial[name], folder / name, manifest | {"metrics": {"images": 12.0}})
    return folder


def evaluate(artifacts: Path, folder: Path, **changes: object) -> dict[str, float]:
    """Run the stage into ``folder``; return its scalar metrics."""
    for name in ("metrics", "report"):
        (folder / name).mkdir(parents=True)
    params = EvaluateParams.model_validate_json(json.dumps(PARAMS | changes))
    inputs = {name: artifacts / name for name in INPUTS}
    return run(params, **inputs, metrics=folder / "metrics", report=folder / "report")


@pytest.fixture(scope="session")
def evaluated(artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder into which the stage has written ``metrics`` and ``report``."""
    folder = tmp_path_factory.mktemp("evaluated")
    evaluate(artifacts, folder)
    return folder
