"""Stage export_ranking_head: run."""

from dataclasses import asdict
from pathlib import Path

import pandas as pd

from bifocal.export import backbone
from bifocal.export.ranking_head import GRAPH, compare_head, export_head, keeps_square, stretched_side
from bifocal.features import FeatureStore
from components.export_ranking_head.spec import ExportRankingHeadParams


def run(params: ExportRankingHeadParams, *, features: Path, ranking_head: Path, ranking_onnx: Path) -> dict[str, float]:
    """Write the graphs, their comparison with torch, and the preprocessing of images.

    ``backbone.onnx`` turns an image into stored features, if one graph can compute them, see
    ``bifocal.export.backbone``. A model that reads the pixels of square images, or stretches original images to a
    square, needs only ``preprocessing.json``.

    Raises:
        ValueError: a graph differs from torch by more than the tolerance.
    """
    export_head(ranking_head, ranking_onnx)
    parities = list(compare_head(ranking_head, ranking_onnx / GRAPH, params.seed))
    if backbone.exportable_extractor(features) is not None:
        backbone.export_backbone(features, ranking_onnx)
        parities += backbone.compare_backbone(features, ranking_onnx / backbone.GRAPH, params.seed)
    preprocessing = FeatureStore(features).metadata.get("preprocessing", {})
    if preprocessing.get("resize") == "square" and keeps_square(ranking_head, preprocessing["size"]):
        backbone.write_preprocessing(features, ranking_onnx)
    elif preprocessing.get("resize") == "limit" and (side := stretched_side(ranking_head)) is not None:
        backbone.write_preprocessing(features, ranking_onnx, side)
    pd.DataFrame([asdict(parity) for parity in parities]).to_csv(ranking_onnx / "parity.csv", index=False)
    worst = max(parities, key=lambda parity: parity.difference)
    if worst.difference > params.tolerance:
        raise ValueError(
            f"{worst.branch}.onnx differs from torch by {worst.difference:.1e} at batch {worst.batch}; "
            f"export_ranking_head.tolerance allows {params.tolerance:.1e}: see {ranking_onnx}/parity.csv"
        )
    return {"greatest_difference": worst.difference}
