"""Stage export_onnx: run."""

import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import pandas as pd

from bifocal.export.backbone import (
    GRAPH,
    compare_backbone,
    export_backbone,
    exportable_extractor,
    write_preprocessing,
)
from bifocal.export.encoders import Branch, export_encoder, keeps_square
from bifocal.export.parity import Parity, compare_encoder
from bifocal.features import FeatureStore
from bifocal.models import load_model
from bifocal.models.inputs import check_inputs
from bifocal.progress import track
from bifocal.text import TextStore, Vocabulary
from bifocal.text.store import CAPTIONS
from components.export_onnx.spec import ExportONNXParams


def run(params: ExportONNXParams, *, features: Path, text: Path, embedding: Path, onnx: Path) -> dict[str, float]:
    """Write the graphs, their comparison with torch, and the files that turn a sentence into their input.

    ``backbone.onnx`` turns an image into features, if one graph can compute them, see ``bifocal.export.backbone``. An
    encoder that reads the pixels of square images needs no backbone, only the resizing in ``preprocessing.json``.

    Raises:
        ValueError: a graph differs from torch by more than the tolerance, or the embedding was trained with other
            features or another vectorizer.
    """
    check_inputs(load_model(embedding), FeatureStore(features), TextStore(text))
    parities = [*_export_encoders(embedding, onnx, params.seed), *_export_backbone(features, onnx, params.seed)]
    preprocessing = FeatureStore(features).metadata.get("preprocessing", {})
    if preprocessing.get("resize") == "square" and keeps_square(embedding, preprocessing["size"]):
        write_preprocessing(features, onnx)
    pd.DataFrame([asdict(parity) for parity in parities]).to_csv(onnx / "parity.csv", index=False)
    worst = max(parities, key=lambda parity: parity.difference)
    if worst.difference > params.tolerance:
        raise ValueError(
            f"{worst.branch}.onnx differs from torch by {worst.difference:.1e} at batch {worst.batch}, length "
            f"{worst.length}; export_onnx.tolerance allows {params.tolerance:.1e}: see {onnx}/parity.csv"
        )
    _copy_vectorizer(text, onnx)
    return {"greatest_difference": worst.difference}


def _export_encoders(embedding: Path, onnx: Path, seed: int) -> Iterator[Parity]:
    for branch in track(get_args(Branch), "export and compare"):
        file = onnx / f"{branch}.onnx"
        export_encoder(embedding, branch, file)
        yield from compare_encoder(embedding, branch, file, seed)


def _export_backbone(features: Path, onnx: Path, seed: int) -> Iterator[Parity]:
    if exportable_extractor(features) is not None:
        export_backbone(features, onnx)
        yield from compare_backbone(features, onnx / GRAPH, seed)


def _copy_vectorizer(text: Path, onnx: Path) -> None:
    """Copy the vocabulary of token ids, or the fitted vectorizer of other formats."""
    if TextStore(text).format.name == "tokens":
        shutil.copy(text / Vocabulary.FILE, onnx / Vocabulary.FILE)
    else:
        shutil.copytree(text, onnx / "text", ignore=shutil.ignore_patterns(CAPTIONS, "manifest.json"))
