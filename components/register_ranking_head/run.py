"""Stage register_ranking_head: run."""

from pathlib import Path

from bifocal.durable import write_json
from bifocal.onnx.files import read_json
from components.register_ranking_head.spec import RegisterRankingHeadParams
from runtime.mlflow.exported import register_exported


def run(
    params: RegisterRankingHeadParams,
    *,
    ranking_metrics: Path,
    ranking_onnx: Path,
    ranking_registration: Path,
) -> dict[str, float]:
    """Write name, number and alias of the model's version; register a new one unless this model has
    one already."""
    report = read_json(ranking_metrics / "metrics.json")
    name, loss = report["measure"].replace("_", " "), report["loss"]
    description = (
        f"Scores of images for the task {report['task']}, trained with {loss['name']}: {name} "
        f"{loss['test']:.3f} on "
        f"the test split, {loss['validation']:.3f} on the validation split.\n"
    )
    version = register_exported(
        params.model,
        params.alias,
        graphs=ranking_onnx,
        evaluation=ranking_metrics,
        tags={"task": report["task"], report["measure"]: f"{loss['test']:.4f}"},
        description=description,
    )
    content = {"model": params.model, "version": version, "alias": params.alias}
    write_json(ranking_registration / "registration.json", content)
    return {"version": version}
