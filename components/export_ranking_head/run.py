"""Stage export_ranking_head: run."""

from pathlib import Path

from bifocal.export.graphs.parity import check_parity
from bifocal.ranking_heads.export import export_ranking_model
from components.export_ranking_head.spec import ExportRankingHeadParams


def run(
    params: ExportRankingHeadParams, *, features: Path, ranking_head: Path, ranking_onnx: Path
) -> dict[str, float]:
    """Write the graphs, their comparison with torch, and the preprocessing of images."""
    parities = export_ranking_model(ranking_head, features, ranking_onnx, seed=params.seed)
    return {"greatest_difference": check_parity(parities, ranking_onnx, params.tolerance)}
