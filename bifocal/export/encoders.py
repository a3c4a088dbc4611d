"""Export of the encoders of a model: ONNX graphs with dynamic batch, regions and time."""

import warnings
from pathlib import Path
from typing import Literal, cast

import onnx
import torch
from torch import Tensor, nn

from bifocal.export.process import run_in_fresh_process
from bifocal.features import RegionBatch
from bifocal.models import TwoBranchModel, load_model
from bifocal.text import TextBatch

Branch = Literal["image_encoder", "text_encoder"]
Shape = tuple[str | int, ...]
"""Dimensions of an input; a name stands for a dynamic dimension."""


class _FeatureBranch(nn.Module):
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


def export_encoder(model_directory: Path, branch: Branch, file: Path) -> None:
    """Write one encoder of a saved model as ONNX.

    Inputs of the image encoder: ``features`` (batch, regions, D) float32 and ``mask`` (batch, regions) bool; if it
    reads pixels: ``pixels`` (batch, 3, height, width) float32, 0 to 255, resized as in evaluation. Inputs of the text
    encoder: ``values`` (batch, time) int64 token ids, or the vectors that the model was trained on, and ``lengths``
    (batch,) int64. Output of both: ``embeddings`` (batch, d) float32, of unit norm.

    Raises:
        ValueError: the model has no single vector per image, or the graph has lost a dynamic dimension.
    """
    run_in_fresh_process(_export, model_directory, branch, file)
    shapes = input_shapes(load_two_branch(model_directory), branch)
    for value in onnx.load(file).graph.input:
        shape = tuple(dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim)
        if shape != shapes[value.name]:
            raise ValueError(f"{file.name}: input {value.name} has shape {shape}, expected {shapes[value.name]}")


def keeps_square(model_directory: Path, size: int) -> bool:
    """Return whether the image encoder reads pixels, and takes a square image of ``size`` pixels as it is."""
    return load_two_branch(model_directory).image_encoder.keeps_square(size)


def load_two_branch(model_directory: Path) -> TwoBranchModel:
    """Return a saved model with one vector per image.

    Raises:
        ValueError: the model has several vectors per image.
    """
    model = load_model(model_directory)
    if not model.single_vector:
        raise ValueError(
            f"{model_directory} holds a {type(model).__name__}, which has no single vector for an image to export: "
            "export a TwoBranchModel"
        )
    return cast(TwoBranchModel, model)


def branch_module(model: TwoBranchModel, branch: Branch) -> nn.Module:
    """Return the module to export, in evaluation mode; its arguments are those of ``input_shapes``, in order."""
    if branch == "text_encoder":
        return _TextBranch(model).eval()
    return (_PixelBranch(model) if model.image_encoder.reads_pixels else _FeatureBranch(model)).eval()


def input_shapes(model: TwoBranchModel, branch: Branch) -> dict[str, Shape]:
    """Return the shape of each input of an exported graph, by its name."""
    if branch == "text_encoder":
        values = model.text_encoder.input_shape
        return {"values": values if model.word_embedding is None else values[:-1], "lengths": ("batch",)}
    if model.image_encoder.reads_pixels:
        return {"pixels": model.image_encoder.input_shape}
    return {"features": model.image_encoder.input_shape, "mask": ("batch", "regions")}


def example_inputs(model: TwoBranchModel, branch: Branch, batch: int, length: int, seed: int) -> tuple[Tensor, ...]:
    """Return random inputs of a branch.

    Args:
        length: regions of an image, or words of a sentence; larger images for an encoder of pixels.
    """
    generator = torch.Generator().manual_seed(seed)
    sizes = {"batch": batch, "regions": length, "time": length, "height": 64 + 8 * length, "width": 96 + 4 * length}
    shapes = [
        [sizes[dim] if isinstance(dim, str) else dim for dim in shape] for shape in input_shapes(model, branch).values()
    ]
    if len(shapes) == 1:
        return (255 * torch.rand(shapes[0], generator=generator),)
    if branch == "image_encoder":
        mask = torch.rand(shapes[1], generator=generator) < 0.7
        mask[:, 0] = True
        return torch.randn(shapes[0], generator=generator), mask
    lengths = torch.randint(1, length + 1, shapes[1], generator=generator)
    lengths[0] = length
    if model.word_embedding is None:
        return torch.randn(shapes[0], generator=generator), lengths
    values = torch.randint(1, model.word_embedding.num_embeddings, shapes[0], generator=generator)
    return values * (torch.arange(length) < lengths.unsqueeze(1)), lengths


def _export(model_directory: Path, branch: Branch, file: Path) -> None:
    model = load_two_branch(model_directory)
    shapes = input_shapes(model, branch)
    names = [name for shape in shapes.values() for name in shape if isinstance(name, str)]
    # A backbone may need sides that are multiples of its stride: torch.export allows this for a name, not for a Dim.
    dims = {name: name if "pixels" in shapes else torch.export.Dim(name) for name in names}
    # Two inputs share an axis on purpose.
    warnings.filterwarnings("ignore", message="# The axis name: .* shares the same shape constraints")
    program = torch.onnx.export(
        branch_module(model, branch),
        example_inputs(model, branch, batch=3, length=4, seed=0),
        input_names=list(shapes),
        output_names=["embeddings"],
        dynamic_shapes=[{axis: dims[n] for axis, n in enumerate(s) if isinstance(n, str)} for s in shapes.values()],
        dynamo=True,
        verbose=False,
    )
    assert program is not None  # torch.onnx.export returns None without dynamo only
    program.save(file, external_data=False)
