"""Stage export_onnx: run."""

import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from bifocal.export.backbone import (
    GRAPH,
    compare_backbone,
    export_backbone,
    exportable_extractor,
    write_preprocessing,
)
from bifocal.export.elmo import GRAPH as ELMO
from bifocal.export.elmo import compare_elmo, export_elmo
from bifocal.export.encoders import branches, export_encoder, keeps_square, stretched_side
from bifocal.export.localizer import compare_localizer, export_localizer
from bifocal.export.parity import Parity, compare_encoder
from bifocal.export.text import compare_text_encoder, export_text_encoder, has_network
from bifocal.features import FeatureStore
from bifocal.models import load_model
from bifocal.models.inputs import check_inputs
from bifocal.progress import track
from bifocal.text import TextStore, Vocabulary
from bifocal.text.store import CAPTIONS
from bifocal.text.transformer.folder import NETWORK
from components.export_onnx.spec import ExportONNXParams


def run(params: ExportONNXParams, *, features: Path, text: Path, embedding: Path, onnx: Path) -> dict[str, float]:
    """Write the graphs, their comparison with torch, and the files that turn a sentence into their input.

    ``backbone.onnx`` turns an image into features, if one graph can compute them, see ``bifocal.export.backbone``. An
    encoder that reads the pixels of square images, or stretches original images to a square, needs no backbone, only
    the resizing in ``preprocessing.json``.

    Raises:
        ValueError: a graph differs from torch by more than the tolerance, or the embedding was trained with other
            features or another vectorizer.
    """
    check_inputs(load_model(embedding), FeatureStore(features), TextStore(text))
    parities = [
        *_export_encoders(embedding, text, onnx, params.seed),
        *_export_backbone(features, onnx, params.seed),
        *_export_vectorizer(text, onnx, params.seed),
    ]
    preprocessing = FeatureStore(features).metadata.get("preprocessing", {})
    if preprocessing.get("resize") == "square" and keeps_square(embedding, preprocessing["size"]):
        write_preprocessing(features, onnx)
    elif preprocessing.get("resize") == "limit" and (side := stretched_side(embedding)) is not None:
        write_preprocessing(features, onnx, side)
    export_localizer(embedding, features, onnx)
    parities += compare_localizer(embedding, onnx, params.seed)
    pd.DataFrame([asdict(parity) for parity in parities]).to_csv(onnx / "parity.csv", index=False)
    worst = max(parities, key=lambda parity: parity.difference)
    if worst.difference > params.tolerance:
        raise ValueError(
            f"{worst.branch}.onnx differs from torch by {worst.difference:.1e} at batch {worst.batch}, length "
            f"{worst.length}; export_onnx.tolerance allows {params.tolerance:.1e}: see {onnx}/parity.csv"
        )
    return {"greatest_difference": worst.difference}


def _export_encoders(embedding: Path, text: Path, onnx: Path, seed: int) -> Iterator[Parity]:
    for branch in track(branches(load_model(embedding)), "export and compare"):
        file = onnx / f"{branch}.onnx"
        if branch == "text_encoder" and has_network(text):
            export_text_encoder(embedding, text, file)
            yield from compare_text_encoder(embedding, text, file, seed)
        else:
            export_encoder(embedding, branch, file)
            yield from compare_encoder(embedding, branch, file, seed)


def _export_backbone(features: Path, onnx: Path, seed: int) -> Iterator[Parity]:
    if exportable_extractor(features) is not None:
        export_backbone(features, onnx)
        yield from compare_backbone(features, onnx / GRAPH, seed)


def _export_vectorizer(text: Path, onnx: Path, seed: int) -> Iterator[Parity]:
    """Copy the vocabulary of token ids, export ELMo, or copy another fitted vectorizer without its network."""
    name = TextStore(text).format.name
    if name == "tokens":
        shutil.copy(text / Vocabulary.FILE, onnx / Vocabulary.FILE)
    elif name == "contextual" and not has_network(text):
        export_elmo(text, onnx / ELMO)
        yield from compare_elmo(text, onnx / ELMO, seed)
    else:
        shutil.copytree(text, onnx / "text", ignore=shutil.ignore_patterns(CAPTIONS, "manifest.json", NETWORK))
