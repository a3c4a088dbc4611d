"""Stage register_model: run."""

import json
from pathlib import Path

from components.register_model.spec import RegisterModelParams
from runtime.artifacts import write_json
from runtime.mlflow import register_exported

CARD, LINEAGE = "MODEL_CARD.md", "## Data, parameters and lineage"


def run(params: RegisterModelParams, *, metrics: Path, onnx: Path, registration: Path) -> dict[str, float]:
    """Write name, number and alias of the model's version; register a new one unless this model has one already."""
    version = register_exported(
        params.model,
        params.alias,
        graphs=onnx,
        evaluation=metrics,
        tags=_recalls(metrics),
        description=_description(metrics / CARD),
    )
    write_json(registration / "registration.json", {"model": params.model, "version": version, "alias": params.alias})
    return {"version": version}


def _description(card: Path) -> str:
    """Return the model card without its lineage, because MLflow's databases store 5,000 characters."""
    short = card.read_text(encoding="utf-8").partition(LINEAGE)[0]
    return short + f"The complete card is the file evidence/{CARD} of the run.\n"


def _recalls(metrics: Path) -> dict[str, str]:
    """Return the recalls as tags; none of an evaluation without retrieval, such as pointing alone."""
    report = json.loads((metrics / "metrics.json").read_text())
    return {
        f"{direction}.{name.replace('@', '_at_')}": f"{value:.2f}"
        for direction in ("caption_retrieval", "image_retrieval")
        for name, value in report.get(direction, {}).items()
    }
