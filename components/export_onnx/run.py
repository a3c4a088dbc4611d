"""How export_onnx works."""

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import pandas as pd

from bifocal.export.backbone import GRAPH, backbone_of, compare_backbone, export_backbone, write_preprocessing
from bifocal.export.encoders import Branch, Parity, compare, export_branch, sees_squares
from bifocal.features import FeatureStore
from bifocal.progress import track
from bifocal.text import TextStore, Vocabulary
from bifocal.text.store import CAPTIONS
from components.export_onnx.spec import ExportONNXParams


def run(params: ExportONNXParams, *, features: Path, text: Path, embedding: Path, onnx: Path) -> dict[str, float]:
    """Write the two graphs, their parity with torch, and beside them what turns a sentence into their input.

    What turns an image into it is ``backbone.onnx``, if one graph makes the features: see ``bifocal.export.backbone``;
    nothing but a resize for an encoder that reads the pixels of squares.

    Raises:
        ValueError: a graph differs from torch by more than the tolerance.
    """
    branches: tuple[Branch, ...] = get_args(Branch)
    parities: list[Parity] = []
    for branch in track(branches, "export and compare"):
        file = onnx / f"{branch}.onnx"
        export_branch(embedding, branch, file)
        parities += compare(embedding, branch, file, params.seed)
    rows = [asdict(parity) for parity in parities]
    if backbone_of(features) is not None:
        export_backbone(features, onnx)
        found = [*compare_backbone(features, onnx / GRAPH, params.seed)]
        rows += [{"branch": "backbone", "batch": batch, "length": 1, "difference": worst} for batch, worst in found]
    preprocessing = FeatureStore(features).metadata.get("preprocessing", {})
    if preprocessing.get("resize") == "square" and sees_squares(embedding, preprocessing["size"]):
        write_preprocessing(features, onnx)
    pd.DataFrame(rows).to_csv(onnx / "parity.csv", index=False)
    worst = max(rows, key=lambda row: row["difference"])
    if worst["difference"] > params.tolerance:
        raise ValueError(
            f"{worst['branch']}.onnx differs from torch by {worst['difference']:.1e} at batch {worst['batch']}, length "
            f"{worst['length']}; export_onnx.tolerance allows {params.tolerance:.1e}: look at {onnx}/parity.csv"
        )
    _copy_vectorizer(text, onnx)
    return {"greatest_difference": worst["difference"]}


def _copy_vectorizer(text: Path, onnx: Path) -> None:
    if TextStore(text).format.name == "tokens":
        shutil.copy(text / Vocabulary.FILE, onnx / Vocabulary.FILE)
    else:
        shutil.copytree(text, onnx / "text", ignore=shutil.ignore_patterns(CAPTIONS, "manifest.json"))
