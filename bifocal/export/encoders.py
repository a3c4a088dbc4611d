"""ONNX: the two branches of a model as graphs with dynamic batch, regions and time."""

import multiprocessing
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn

from bifocal.features import RegionBatch
from bifocal.models import TwoBranchModel, load_model
from bifocal.text import TextBatch

Branch = Literal["image_encoder", "text_encoder"]


class _ImageBranch(nn.Module):
    def __init__(self, model: TwoBranchModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        return self.model.embed_images(RegionBatch(features, mask, features.new_zeros(0)))


class _PixelBranch(nn.Module):
    def __init__(self, model: TwoBranchModel) -> None:
        super().__init__()
        self.encoder = model.image_encoder

    def forward(self, pixels: Tensor) -> Tensor:
        return self.encoder.embed_pixels(pixels)


class _TextBranch(nn.Module):
    def __init__(self, model: TwoBranchModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        return self.model.embed_captions(TextBatch(values, lengths))


@dataclass(frozen=True)
class Parity:
    """One comparison of a graph with torch: the greatest difference of any number of an embedding."""

    branch: Branch
    batch: int
    length: int
    difference: float


def export_branch(model_directory: Path, branch: Branch, file: Path) -> None:
    """Write one branch of a saved model as ONNX.

    Inputs of the image encoder: ``features`` (batch, regions, D) float32, ``mask`` (batch, regions) bool; of one that
    reads pixels: ``pixels`` (batch, 3, height, width) float32, 0 to 255, resized as in evaluation. Of the text encoder:
    ``values`` (batch, time) int64 token ids, or the vectors that the model was trained on, and ``lengths`` (batch,)
    int64. Output of both: ``embeddings`` (batch, d) float32, of unit norm.

    Raises:
        ValueError: the graph has lost a dynamic dimension.
    """
    # A fresh process each: a second export in one process may freeze a dynamic axis in silence.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1) as process:
        process.submit(_export, model_directory, branch, file).result()
    shapes = _shapes(_load(model_directory), branch)
    for value in onnx.load(file).graph.input:
        found = tuple(dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim)
        if found != shapes[value.name]:
            raise ValueError(f"{file.name}: input {value.name} has shape {found}, expected {shapes[value.name]}")


def sees_squares(model_directory: Path, side: int) -> bool:
    """Whether the image encoder reads pixels, and in evaluation sees a square of ``side`` pixels as it is."""
    return _load(model_directory).image_encoder.keeps_square(side)


def compare(model_directory: Path, branch: Branch, file: Path, seed: int) -> Iterator[Parity]:
    """Compare an exported branch with torch on random inputs of several batch sizes and lengths."""
    model = _load(model_directory)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    module = _branch(model, branch)
    for batch in (1, 2, 5):
        for length in (1, 3, 20):
            inputs = _example(model, branch, batch, length, seed)
            with torch.inference_mode():
                expected = module(*inputs).numpy()
            names = [value.name for value in session.get_inputs()]
            found = session.run(None, {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)})[0]
            # NaN in either is a difference too, and no comparison with NaN is true.
            difference = float(np.abs(found - expected).max()) if np.isfinite(found).all() else float("inf")
            yield Parity(branch, batch, length, difference)


def _load(model_directory: Path) -> TwoBranchModel:
    model = load_model(model_directory)
    if not model.single_vector:
        raise ValueError(
            f"{model_directory} holds a {type(model).__name__}, which has no single vector for an image to export: "
            "export a TwoBranchModel"
        )
    return cast(TwoBranchModel, model)


def _export(model_directory: Path, branch: Branch, file: Path) -> None:
    model = _load(model_directory)
    shapes = _shapes(model, branch)
    names = [name for shape in shapes.values() for name in shape if isinstance(name, str)]
    # A backbone may need sides that are multiples of its stride; torch.export takes that of a name, not of a Dim.
    dims = {name: name if "pixels" in shapes else torch.export.Dim(name) for name in names}
    # Said of two inputs whose axis has one name, as it should.
    warnings.filterwarnings("ignore", message="# The axis name: .* shares the same shape constraints")
    program = torch.onnx.export(
        _branch(model, branch),
        _example(model, branch, batch=3, length=4, seed=0),
        input_names=list(shapes),
        output_names=["embeddings"],
        dynamic_shapes=[{axis: dims[n] for axis, n in enumerate(s) if isinstance(n, str)} for s in shapes.values()],
        dynamo=True,
        verbose=False,
    )
    assert program is not None  # what torch.onnx.export gives with dynamo
    program.save(file, external_data=False)


def _shapes(model: TwoBranchModel, branch: Branch) -> dict[str, tuple[str | int, ...]]:
    """Shape of each input; a name stands for a dynamic dimension."""
    if branch == "image_encoder" and model.image_encoder.reads_pixels:
        side = model.image_encoder.onnx_image_size
        return {"pixels": ("batch", 3, side or "height", side or "width")}
    if branch == "image_encoder":
        return {"features": ("batch", "regions", model.feature_dim), "mask": ("batch", "regions")}
    values: dict[str, tuple[str | int, ...]] = {
        "tokens": ("batch", "time"),
        "contextual": ("batch", 3, "time", model.text_dim),
        "vectors": ("batch", model.text_dim),
        "sparse": ("batch", model.text_dim),
    }
    return {"values": values[model.text_format], "lengths": ("batch",)}


def _branch(model: TwoBranchModel, branch: Branch) -> nn.Module:
    if branch == "text_encoder":
        return _TextBranch(model).eval()
    return (_PixelBranch(model) if model.image_encoder.reads_pixels else _ImageBranch(model)).eval()


def _example(model: TwoBranchModel, branch: Branch, batch: int, length: int, seed: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    sizes = {"batch": batch, "regions": length, "time": length, "height": 64 + 8 * length, "width": 96 + 4 * length}
    first, *others = (
        [sizes[n] if isinstance(n, str) else n for n in shape] for shape in _shapes(model, branch).values()
    )
    if not others:
        return (255 * torch.rand(first, generator=generator),)
    (second,) = others
    if branch == "image_encoder":
        mask = torch.rand(second, generator=generator) < 0.7
        mask[:, 0] = True
        return torch.randn(first, generator=generator), mask
    lengths = torch.randint(1, length + 1, second, generator=generator)
    lengths[0] = length
    if model.word_embedding is None:
        return torch.randn(first, generator=generator), lengths
    values = torch.randint(1, model.word_embedding.num_embeddings, first, generator=generator)
    return values * (torch.arange(length) < lengths.unsqueeze(1)), lengths
