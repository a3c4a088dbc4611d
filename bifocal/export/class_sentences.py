"""Encoders without training or torch: class probabilities of an image times sentence vectors of the
classes."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file, save_file

from bifocal.backbones.classes import Classes, class_vectors, imagenet_classes
from bifocal.backbones.networks import Networks, is_backbone
from bifocal.durable import write_json
from bifocal.durable.cached import cached_folder, kept, state_of
from bifocal.export.graphs.pretrained import efficientnet_lite_graph, normalized, sentence_graph
from bifocal.export.graphs.quantization import quantize_graph
from bifocal.onnx.files import read_json
from bifocal.onnx.pixels import DECODED_SCALE
from bifocal.onnx.pointing.head import DESCRIPTION, FOLDER, GRAPH, HeadValues
from bifocal.onnx.pointing.similarity import CLASSES, SENTENCES, VECTORS, unit
from bifocal.onnx.sessions import open_session, run_graph
from bifocal.onnx.text.tokenizer import TOKENIZER
from bifocal.text.transformer.folder import TransformerFolder

SIZE = 320
"""Side of the square images in pixels, a multiple of the backbone's stride."""
BATCH = 64
PACKAGED = "classes.npz"
"""Vectors of the classes as float16 beside the packaged sentence encoder: computing them takes ten
seconds."""


def small_encoders(networks: Networks) -> Path:
    """Return the folder of the encoders small in the user's cache, with their pointing head; only
    with the head if there is no sentence encoder."""
    files = [networks.backbone]
    files += sorted(networks.sentences.rglob("*.safetensors")) if networks.sentences else []
    place = kept("encoders", "small", *map(state_of, files), code=[__name__])
    return cached_folder(place, partial(_write_small, networks))


def _write_small(networks: Networks, folder: Path) -> None:
    head = folder / FOLDER
    head.mkdir()
    if not is_backbone(networks.backbone):
        raise ValueError(f"{networks.backbone} has not the weights of EfficientNet-Lite2")
    onnx.save(efficientnet_lite_graph(load_file(networks.backbone)), head / GRAPH)
    classes = imagenet_classes()
    if networks.sentences is not None:
        encoder = TransformerFolder.read(networks.sentences)
        graph = sentence_graph(encoder)
        if graph is None:
            raise ValueError(
                f"{networks.sentences}: expected all-MiniLM-L6-v2, or another BERT with GELU whose "
                "vectors are means of tokens"
            )
        onnx.save(graph, head / SENTENCES)
        quantize_graph(head / SENTENCES)
        tokenizer, session = encoder.tokenizer(), open_session(head / SENTENCES)
        tokenizer.save(head / TOKENIZER)

        def encode(texts: Sequence[str]) -> NDArray[np.float32]:
            order = np.argsort([len(text) for text in texts])
            vectors = [
                run_graph(session, tokenizer.batch([texts[row] for row in rows]))[0]
                for rows in np.array_split(order, -(-len(texts) // BATCH))
            ]
            return unit(np.concatenate(vectors))[np.argsort(order)]

        if (known := networks.sentences / PACKAGED).is_file():
            with np.load(known, allow_pickle=False) as stored:
                save_file(
                    {
                        name: values.astype(np.float32) if values.dtype == np.float16 else values
                        for name, values in stored.items()
                    },
                    head / VECTORS,
                )
        else:
            write_class_vectors(head / VECTORS, classes, encode)
    write_head_texts(head, classes, asdict(HeadValues()), "bicubic")
    if networks.sentences is not None:
        export_class_sentences(folder)


def write_head_texts(
    head: Path, classes: Classes, values: Mapping[str, Any], interpolation: str
) -> None:
    """Write the names and definitions of the classes of a pointing head, and its numbers."""
    shown = classes.shown_with
    names = [[*names, *shown.get(number, ())] for number, names in enumerate(classes.names)]
    texts = {"names": names, "definitions": list(classes.definitions)}
    write_json(head / CLASSES, texts)
    write_json(head / DESCRIPTION, {**values, "interpolation": interpolation})


def write_class_vectors(
    file: Path, classes: Classes, encode: Callable[[Sequence[str]], NDArray[np.float32]]
) -> None:
    """Write the vectors of the texts of each class, whether they name it, the class's number, and
    the definitions."""
    names = [(number, name) for number, names in enumerate(classes.names) for name in names]
    shown = [(number, word) for number, words in classes.shown_with.items() for word in words]
    words = sorted({word for _, word in shown})
    vectors = encode([*(name for _, name in names), *words])
    rows = [*range(len(names)), *(len(names) + words.index(word) for _, word in shown)]
    numbers = np.array([number for number, _ in (*names, *shown)], np.int32)
    order = np.argsort(numbers, kind="stable")  # the texts of a class follow one another
    content = {
        "synonyms": vectors[rows][order],
        "classes": numbers[order],
        "named": order < len(names),
        "definitions": encode(classes.definitions),
    }
    save_file(content, file)


def export_class_sentences(folder: Path, size: int = SIZE) -> None:
    """Write the encoders of images and of sentences that the pointing head in ``folder`` gives.

    An image has the class probabilities p, the mean over the cells of its last map; a class k has
    the vector v_k, the normalized sum of the sentence vectors of its names and of its definition::

        image    = normalize(sum_k p_k (v_k - mean(v)))        sentence = its sentence vector

    This is eq. (2) of Norouzi et al., "Zero-shot learning by convex combination of semantic
    embeddings", ICLR 2014, with all classes. Without subtracting the mean, all images are near one
    vector.
    """
    head = folder / FOLDER
    stored = load_file(head / VECTORS)
    named = stored["named"]
    vectors = class_vectors(
        stored["synonyms"][named], stored["classes"][named], stored["definitions"]
    )
    (folder / "text").mkdir()
    onnx.save(
        _image_graph(onnx.load(head / GRAPH), vectors - vectors.mean(axis=0), size),
        folder / "image_encoder.onnx",
    )
    onnx.save(normalized(onnx.load(head / SENTENCES)), folder / "text_encoder.onnx")
    write_json(folder / "text" / "config.json", {"name": "SentenceVectors"})
    shutil.copyfile(head / TOKENIZER, folder / "text" / TOKENIZER)
    interpolation = read_json(head / DESCRIPTION)["interpolation"]
    preprocessing = {
        "decoded_side": DECODED_SCALE * size,
        "interpolation": interpolation,
        "size": size,
    }
    write_json(folder / "preprocessing.json", preprocessing)


def _image_graph(
    model: onnx.ModelProto, vectors: NDArray[np.float32], size: int
) -> onnx.ModelProto:
    """Return the graph of the class logits behind pixels of ``size``, with embeddings in place of
    the logits."""
    graph = model.graph
    (pixels,), (logits,) = graph.input, graph.output
    bytes_name = f"{pixels.name}_bytes"
    for node in graph.node:
        node.input[:] = [bytes_name if name == pixels.name else name for name in node.input]
    graph.initializer.extend(
        [
            numpy_helper.from_array(vectors, "class_vectors"),
            numpy_helper.from_array(np.array([1, 2], np.int64), "cell_axes"),
        ]
    )
    graph.node.insert(
        0, helper.make_node("Cast", [pixels.name], [bytes_name], to=TensorProto.UINT8)
    )
    graph.node.extend(
        [
            helper.make_node("Softmax", [logits.name], ["cell_probabilities"], axis=3),
            helper.make_node(
                "ReduceMean", ["cell_probabilities", "cell_axes"], ["probabilities"], keepdims=0
            ),
            helper.make_node("MatMul", ["probabilities", "class_vectors"], ["image_vectors"]),
        ]
    )
    # Servers give pixels as float32.
    shape = ["batch", 3, size, size]
    pixels.CopyFrom(helper.make_tensor_value_info(pixels.name, TensorProto.FLOAT, shape))
    logits.CopyFrom(
        helper.make_tensor_value_info(
            "image_vectors", TensorProto.FLOAT, ["batch", vectors.shape[1]]
        )
    )
    return normalized(model)
