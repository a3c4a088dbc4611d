"""An exported model as two graphs in the layout of ``bifocal.onnx.towers``, which Immich reads.
Needs no torch."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
from onnx import TensorProto, compose

from bifocal.onnx.text.sentences import open_readers
from bifocal.onnx.text.tokenizer import TOKENIZER, FixedLength, SubwordTokenizer
from bifocal.onnx.towers import (
    CONFIG,
    GRAPH,
    IMAGES,
    PREPROCESSING,
    TEXTS,
    TOKENIZER_CONFIG,
    is_towers,
)

BACKBONE, EMBEDDINGS = "backbone.onnx", "embeddings"
PADDING = ("[PAD]", "<pad>")
"""Names of the token behind the end of a sentence."""


def export_immich(source: Path, folder: Path) -> None:
    """Write ``visual/``, ``textual/`` and ``config.json`` with the vectors of an exported model.

    Args:
        source: folder of ``image_encoder.onnx``, ``text_encoder.onnx`` and what turns files and
            sentences into their inputs; a folder that has the layout is copied.

    Raises:
        ValueError: the layout cannot describe how the model reads images or sentences.
    """
    if is_towers(source):
        for part in (IMAGES, TEXTS):
            shutil.copytree(source / part, folder / part)
        shutil.copyfile(source / CONFIG, folder / CONFIG)
        return
    tokenizer, length, padding = _tokenizer(source)
    preprocessing = _preprocessing(source)
    for part in (IMAGES, TEXTS):
        (folder / part).mkdir(parents=True)
    visual = _visual(source, preprocessing["size"])
    onnx.save(visual, folder / IMAGES / GRAPH)
    onnx.save(
        _textual(onnx.load(source / "text_encoder.onnx"), length, padding), folder / TEXTS / GRAPH
    )
    tokenizer.save(folder / TEXTS / TOKENIZER)
    dim = visual.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    config = {
        "embed_dim": dim,
        "vision_cfg": {"image_size": preprocessing["size"]},
        "text_cfg": {"context_length": length},
    }
    contents = {
        IMAGES / PREPROCESSING: preprocessing,
        TEXTS / TOKENIZER_CONFIG: {"pad_token": tokenizer.tokenizer.id_to_token(padding)},
        Path(CONFIG): config,
    }
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _tokenizer(source: Path) -> tuple[SubwordTokenizer, int, int]:
    """Return a model's only tokenizer, the number of ids that it reads, and the id behind the end
    of a sentence."""
    readers: Sequence[Any] = open_readers(source / "text") if (source / "text").is_dir() else []
    reader = readers[0] if len(readers) == 1 else None
    if isinstance(reader, FixedLength):
        return reader.tokenizer, reader.length, reader.padding
    if isinstance(reader, SubwordTokenizer):
        ids = [reader.tokenizer.token_to_id(name) for name in PADDING]
        found, truncation = (
            [number for number in ids if number is not None],
            reader.tokenizer.truncation,
        )
        if found and truncation:
            return reader, int(truncation["max_length"]), found[0]
    raise ValueError(
        "the layout of Immich has one tokenizer, with a token for padding: train with the text "
        "of one transformer, such as SentenceVectors"
    )


def _preprocessing(source: Path) -> dict[str, Any]:
    """Return ``preprocess_cfg.json``; pixels in [0, 1] reach the graph, which normalizes them
    itself."""
    file = source / "preprocessing.json"
    given: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {"size": None}
    size, scaled = given["size"], given.get("scaled")
    if size is None or scaled not in (None, size) or given.get("resize", "square") != "square":
        raise ValueError(
            "the layout of Immich has whole images as squares, or squares from border to "
            f"border, and this model reads {given if size else 'published features'}: train "
            "with another extractor"
        )
    return {
        "size": size,
        "mode": "RGB",
        "mean": [0.0, 0.0, 0.0],
        "std": [1.0, 1.0, 1.0],
        "interpolation": given["interpolation"],
        "resize_mode": "squash" if scaled is None else "shortest",
        "fill_color": 0,
    }


def _visual(source: Path, size: int) -> onnx.ModelProto:
    """Return the graph from ``image`` (batch, 3, size, size) in [0, 1] to the embeddings."""
    encoder = onnx.load(source / "image_encoder.onnx")
    values, *mask = [value.name for value in encoder.graph.input]
    kind = "uint8" if mask else "float"
    to_pixels = f"""(float[batch, 3, {size}, {size}] image) => ({kind}[batch, 3, {size}, {size}] pixels) {{
        largest = Constant <value_float = 255.0> ()
        inexact = Mul(image, largest)
        whole = Round(inexact)
        pixels = Cast <to = {TensorProto.UINT8 if mask else TensorProto.FLOAT}> (whole)
    }}"""
    if not mask:
        return _behind(_graph(to_pixels, encoder), encoder, [("pixels", values)])
    backbone = onnx.load(source / BACKBONE)
    (pixels,), (features,) = backbone.graph.input, backbone.graph.output
    # The feature store, and so the evaluated model, rounds to float16.
    to_regions = f"""(float[batch, R, D] cells) => (float[batch, R, D] regions_of_image, bool[batch, R] inside) {{
        half = Cast <to = {TensorProto.FLOAT16}> (cells)
        regions_of_image = Cast <to = {TensorProto.FLOAT}> (half)
        shape = Shape <end = 2> (regions_of_image)
        inside = ConstantOfShape <value = bool[1] {{1}}> (shape)
    }}"""
    cells = _behind(_graph(to_pixels, encoder), backbone, [("pixels", pixels.name)], features.name)
    regions = _behind(cells, _graph(to_regions, encoder), [(features.name, "cells")], None)
    return _behind(regions, encoder, [("regions_of_image", values), ("inside", mask[0])])


def _textual(encoder: onnx.ModelProto, length: int, padding: int) -> onnx.ModelProto:
    """Return the graph from the padded ids ``text`` (batch, length) int32 to the embeddings."""
    values, lengths = [value.name for value in encoder.graph.input]
    to_ids = f"""(int32[batch, {length}] text) => (int64[batch, {length}] ids, int64[batch] words) {{
        ids = Cast <to = {TensorProto.INT64}> (text)
        padding = Constant <value_int = {padding}> ()
        behind = Equal(ids, padding)
        inside = Not(behind)
        ones = Cast <to = {TensorProto.INT64}> (inside)
        axes = Constant <value_ints = [1]> ()
        words = ReduceSum <keepdims = 0> (ones, axes)
    }}"""
    return _behind(_graph(to_ids, encoder), encoder, [("ids", values), ("words", lengths)])


def _graph(text: str, like: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph in the textual format of ONNX, of the version of another one."""
    version = next(opset.version for opset in like.opset_import if not opset.domain)
    return onnx.parser.parse_model(
        f'<ir_version: {like.ir_version}, opset_import: ["": {version}]> glue {text}'
    )


def _behind(
    first: onnx.ModelProto,
    second: onnx.ModelProto,
    pairs: list[tuple[str, str]],
    output: str | None = EMBEDDINGS,
) -> onnx.ModelProto:
    """Return two graphs as one, with one output of the second; None for all outputs."""
    unique = f"{len(first.graph.node)}/"
    named = compose.add_prefix(second, unique, rename_outputs=False)
    renamed = [(name, unique + other) for name, other in pairs]
    return compose.merge_models(first, named, renamed, outputs=None if output is None else [output])
