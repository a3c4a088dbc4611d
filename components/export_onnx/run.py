"""Stage export_onnx: run."""

from pathlib import Path

from bifocal.datasets import read_dataset
from bifocal.export.graphs.parity import check_parity
from bifocal.export.model import export_model
from bifocal.export.variants import quantize_and_measure
from bifocal.features import open_features
from bifocal.search.calibration.phrases import calibrate_phrases
from components.export_onnx.spec import ExportONNXParams


def run(
    params: ExportONNXParams,
    *,
    dataset: Path,
    features: Path,
    text: Path,
    embedding: Path,
    onnx: Path,
) -> dict[str, float]:
    """Write the graphs, quantized if int8, their comparison with torch, and the files that prepare
    their inputs."""
    parities = export_model(
        embedding,
        features,
        text,
        onnx,
        seed=params.seed,
        localizer=params.localizer,
        pointing=params.pointing,
    )
    metrics = {"greatest_difference": check_parity(parities, onnx, params.tolerance)}
    tables = read_dataset(dataset)
    if params.pointing is not None:
        calibrate_phrases(onnx, tables)
    if params.precision == "int8":
        metrics |= quantize_and_measure(
            onnx, tables.split("val"), open_features(features, tables), params.max_recall_loss
        )
    return metrics
