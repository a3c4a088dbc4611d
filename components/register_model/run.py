"""Stage register_model: run."""

from pathlib import Path

from bifocal.durable import write_json
from bifocal.onnx.files import read_json
from components.register_model.spec import RegisterModelParams
from runtime.mlflow.exported import register_exported

CARD, LINEAGE = "MODEL_CARD.md", "## Data, parameters and lineage"
QUANTIZATION = "quantization.json"
"""Measurements of graphs of float32 and of int8, if the registered ones have int8."""


def run(
    params: RegisterModelParams, *, metrics: Path, onnx: Path, registration: Path
) -> dict[str, float]:
    """Write name, number and alias of the model's version; register a new one unless this model has
    one already."""
    version = register_exported(
        params.model,
        params.alias,
        graphs=onnx,
        evaluation=metrics,
        tags=_recalls(metrics),
        description=_description(metrics / CARD) + _precisions(onnx / QUANTIZATION),
    )
    write_json(
        registration / "registration.json",
        {"model": params.model, "version": version, "alias": params.alias},
    )
    return {"version": version}


def _description(card: Path) -> str:
    """Return the model card without metadata and lineage, because MLflow's databases store 5,000
    characters."""
    short = _without_metadata(card.read_text(encoding="utf-8")).partition(LINEAGE)[0]
    return short + f"The complete card is the file evidence/{CARD} of the run.\n"


def _without_metadata(card: str) -> str:
    """Return a card without the metadata of a hub, which stand between two lines of three
    dashes."""
    return card.split("---\n", 2)[2].lstrip("\n") if card.startswith("---\n") else card


def _precisions(file: Path) -> str:
    """Return the measurements of both precisions as a table in Markdown; nothing for graphs of
    float32."""
    if not file.is_file():
        return ""
    rows = [
        f"| {precision} | {values['megabytes']:.1f} | {values['caption_recall']:.1f} / "
        f"{values['image_recall']:.1f} |"
        for precision, values in read_json(file).items()
    ]
    head = [
        "## Precision of the graphs",
        "The registered graphs have weights of int8. Recalls on the split val. The run of "
        "export_onnx has times.",
        "",
        "| weights | MB | R@1 caption / image |",
        "| --- | --- | --- |",
    ]
    return "\n" + "\n".join([*head, *rows]) + "\n"


def _recalls(metrics: Path) -> dict[str, str]:
    """Return the recalls as tags; none of an evaluation without retrieval, such as only
    pointing."""
    report = read_json(metrics / "metrics.json")
    return {
        f"{direction}.{name.replace('@', '_at_')}": f"{value:.2f}"
        for direction in ("caption_retrieval", "image_retrieval")
        for name, value in report.get(direction, {}).items()
    }
