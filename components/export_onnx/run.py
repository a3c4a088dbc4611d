"""Stage export_onnx: run."""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from bifocal.datasets import read_dataset
from bifocal.export.backbone import (
    GRAPH,
    compare_backbone,
    export_backbone,
    exportable_extractor,
    write_preprocessing,
)
from bifocal.export.elmo import GRAPH as ELMO
from bifocal.export.elmo import compare_elmo, export_elmo
from bifocal.export.encoders import branches, export_encoder, keeps_pixels, stretched_side
from bifocal.export.localizer import compare_localizer, export_localizer
from bifocal.export.parity import Parity, compare_encoder
from bifocal.export.quantization import quantize_graph
from bifocal.export.text import compare_text_encoder, export_text_encoder, has_network
from bifocal.export.variants import measure
from bifocal.features import FeatureStore, open_features
from bifocal.models import load_model
from bifocal.models.inputs import check_inputs
from bifocal.progress import track
from bifocal.text import TextStore, Vocabulary
from bifocal.text.store import CAPTIONS
from bifocal.text.transformer.folder import NETWORK
from bifocal.text.transformer.tokenizer import TOKENIZER
from bifocal.text.vectorizers.contextual.open_clip_text import TOWER
from components.export_onnx.spec import ExportONNXParams

QUANTIZATION = "quantization.json"


def run(
    params: ExportONNXParams, *, dataset: Path, features: Path, text: Path, embedding: Path, onnx: Path
) -> dict[str, float]:
    """Write the graphs, their comparison with torch, and the files that turn a sentence into their input.

    ``backbone.onnx`` turns an image into features, if one graph can compute them, see ``bifocal.export.backbone``. An
    encoder that reads pixels, or stretches original images to a square, needs no backbone, only the resizing in
    ``preprocessing.json``. With int8, the graphs are then quantized, and measured on the split "val"
    beside those of float32: ``quantization.json``.

    Raises:
        ValueError: a graph differs from torch by more than the tolerance, graphs of int8 lose more recall than allowed,
            or the embedding was trained with other features or another vectorizer.
    """
    check_inputs(load_model(embedding), FeatureStore(features), TextStore(text))
    parities = [
        *_export_encoders(embedding, text, onnx, params),
        *_export_backbone(features, onnx, params.seed),
        *_export_vectorizer(text, onnx, params.seed),
    ]
    preprocessing = FeatureStore(features).metadata.get("preprocessing", {})
    resize = preprocessing.get("resize")
    if resize is not None and keeps_pixels(embedding, resize, preprocessing["size"]):
        write_preprocessing(features, onnx)
    elif resize == "limit" and (side := stretched_side(embedding)) is not None:
        write_preprocessing(features, onnx, side)
    export_localizer(embedding, features, onnx, params.localizer)
    parities += compare_localizer(embedding, onnx, params.seed, params.localizer)
    pd.DataFrame([asdict(parity) for parity in parities]).to_csv(onnx / "parity.csv", index=False)
    worst = max(parities, key=lambda parity: parity.difference)
    if worst.difference > params.tolerance:
        raise ValueError(
            f"{worst.branch}.onnx differs from torch by {worst.difference:.1e} at batch {worst.batch}, length "
            f"{worst.length}; export_onnx.tolerance allows {params.tolerance:.1e}: see {onnx}/parity.csv"
        )
    metrics = {"greatest_difference": worst.difference}
    if params.precision == "int8":
        metrics |= _quantize(params, dataset, features, onnx)
    return metrics


def _quantize(params: ExportONNXParams, dataset: Path, features: Path, onnx: Path) -> dict[str, float]:
    """Replace all graphs by graphs of int8, and write what they gain and lose."""
    tables = read_dataset(dataset)
    split, store = tables.split("val"), open_features(features, tables)
    variants = {"float32": measure(onnx, split, store)}
    for file in track(sorted(onnx.glob("*.onnx")), "quantize"):
        quantize_graph(file)
    variants["int8"] = measure(onnx, split, store)
    loss = variants["float32"].recall - variants["int8"].recall
    content = {name: asdict(variant) for name, variant in variants.items()}
    (onnx / QUANTIZATION).write_text(json.dumps(content, indent=2) + "\n")
    if loss > params.max_recall_loss:
        raise ValueError(
            f"graphs of int8 lose {loss:.2f} points of R@1 on the split val; export_onnx.max_recall_loss allows "
            f"{params.max_recall_loss:.2f}: set export_onnx.precision to float32"
        )
    return {f"{name}.{key}": value for name, values in content.items() for key, value in values.items()}


def _export_encoders(embedding: Path, text: Path, onnx: Path, params: ExportONNXParams) -> Iterator[Parity]:
    for branch in track(branches(load_model(embedding)), "export and compare"):
        file = onnx / f"{branch}.onnx"
        if branch == "text_encoder" and has_network(text):
            export_text_encoder(embedding, text, file)
            yield from compare_text_encoder(embedding, text, file, params.seed)
        else:
            export_encoder(embedding, branch, file, params.localizer)
            yield from compare_encoder(embedding, branch, file, params.seed, params.localizer)


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
        shutil.copytree(text, onnx / "text", ignore=_exported_files)


def _exported_files(folder: str, names: Sequence[str]) -> set[str]:
    """Return the files of a text that serving does not need: captions, and networks that are in a graph."""
    return {CAPTIONS, "manifest.json", NETWORK, *([TOWER] if TOKENIZER in names else [])} & set(names)
