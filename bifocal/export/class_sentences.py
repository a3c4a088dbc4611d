"""Encoders without training: class probabilities of an image times sentence vectors of the
classes."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import load_file

from bifocal.backbones.classes import class_vectors
from bifocal.onnx.pixels import DECODED_SCALE
from bifocal.onnx.pointing.head import DESCRIPTION, FOLDER, GRAPH
from bifocal.onnx.pointing.similarity import SENTENCES, VECTORS
from bifocal.onnx.text.tokenizer import TOKENIZER

SIZE = 320
"""Side of the square images in pixels, a multiple of the backbone's stride."""


def export_class_sentences(head: Path, folder: Path, size: int = SIZE) -> None:
    """Write the encoders of images and of sentences that the graphs of an exported pointing head
    give, and the head.

    An image has the class probabilities p, the mean over the cells of its last map; a class k has
    the vector v_k, the normalized sum of the sentence vectors of its names and of its definition::

        image    = normalize(sum_k p_k (v_k - mean(v)))        sentence = its sentence vector

    This is eq. (2) of Norouzi et al., "Zero-shot learning by convex combination of semantic
    embeddings", ICLR 2014, with all classes. Without subtracting the mean, all images are near one
    vector.
    """
    if not (head / SENTENCES).is_file():
        raise ValueError(
            "a search without training needs a sentence encoder beside the backbone, and there "
            "is none"
        )
    stored = load_file(head / VECTORS)
    named = stored["named"]
    vectors = class_vectors(
        stored["synonyms"][named], stored["classes"][named].long(), stored["definitions"]
    ).numpy()
    (folder / "text").mkdir(parents=True, exist_ok=True)
    onnx.save(
        _image_graph(onnx.load(head / GRAPH), vectors - vectors.mean(axis=0), size),
        folder / "image_encoder.onnx",
    )
    onnx.save(_normalized(onnx.load(head / SENTENCES)), folder / "text_encoder.onnx")
    (folder / "text" / "config.json").write_text(json.dumps({"name": "SentenceVectors"}) + "\n")
    shutil.copyfile(head / TOKENIZER, folder / "text" / TOKENIZER)
    interpolation = json.loads((head / DESCRIPTION).read_text())["interpolation"]
    preprocessing = {
        "decoded_side": DECODED_SCALE * size,
        "interpolation": interpolation,
        "size": size,
    }
    (folder / "preprocessing.json").write_text(json.dumps(preprocessing, indent=2) + "\n")
    shutil.copytree(head, folder / FOLDER, dirs_exist_ok=True)


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
    return _normalized(model)


def _normalized(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph whose only output is divided by its norm and called "embeddings"."""
    (output,) = model.graph.output
    node = helper.make_node("LpNormalization", [output.name], ["embeddings"], axis=1, p=2)
    model.graph.node.append(node)
    output.name = "embeddings"
    return model
