"""Export of a model: ONNX graphs of its encoders, and a scoring graph unless scores are dot
products."""

from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from bifocal.export.graphs.write import (
    Shape,
    check_shapes,
    random_images,
    run_in_fresh_process,
    write_graph,
)
from bifocal.features import RegionBatch
from bifocal.localization.base import AutoLocalizer, Localizer
from bifocal.models import GroundingModel, TwoBranchModel, load_model
from bifocal.models.base import Model
from bifocal.models.grounding import pertinence
from bifocal.onnx.sessions import REGIONS
from bifocal.registry import build
from bifocal.text import TextBatch

Branch = Literal["image_encoder", "text_encoder", "scores"]
Encoder = TwoBranchModel | GroundingModel


class LateInteraction(nn.Module):
    """Scores (N, M) of a ``GroundingModel``, R_w + R_s for all pairs, in operations that ONNX
    supports. Akbari et al., CVPR 2019, eq. (1)-(6); cells (N, L, R, d), sentences (M, d) and words
    (M, T, d) are zero for padding.
    """

    def __init__(self, model: GroundingModel) -> None:
        super().__init__()
        self.attention, self.sharpness = model.attention, model.word_sharpness

    def forward(self, cells: Tensor, sentences: Tensor, words: Tensor) -> Tensor:
        attention = self.attention
        by_word = self._best(words.flatten(0, 1), cells, unit=True, level=attention.word_level)
        by_word = self.sharpness * by_word.unflatten(1, (words.shape[0], words.shape[1]))
        absent = ~words.any(dim=2)
        highest = by_word.masked_fill(absent, -1e4).amax(dim=2, keepdim=True)
        terms = (by_word - highest).exp().masked_fill(absent, 0.0)
        word_scores = (highest.squeeze(2) + terms.sum(dim=2).log()) / self.sharpness
        unit, level = attention.unit_sentence, attention.sentence_level
        scores: Tensor = word_scores + self._best(sentences, cells, unit=unit, level=level)
        return scores

    def _best(self, texts: Tensor, cells: Tensor, *, unit: bool, level: int | None) -> Tensor:
        """Pertinence (N, K) of texts (K, d) at the best level, or at one level."""
        if level is not None:
            cells = cells[:, level : level + 1]
        return pertinence(texts, cells, unit=unit, softmax=self.attention.softmax).amax(dim=2)


class _FeatureBranch(nn.Module):
    def __init__(self, model: Encoder, localizer: Localizer | None) -> None:
        super().__init__()
        self.model, self.localizer = model, localizer

    def forward(self, features: Tensor, mask: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        regions = RegionBatch(features, mask, features.new_zeros(0))
        embeddings = self.model.embed_images(regions)
        if self.localizer is None:
            return embeddings
        return embeddings, self.localizer.encode(self.model.image_encoder, regions).vectors


class _PixelBranch(nn.Module):
    def __init__(self, model: Encoder, localizer: Localizer | None) -> None:
        super().__init__()
        self.encoder, self.localizes = model.image_encoder, localizer is not None

    def forward(self, pixels: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        embeddings = self.encoder.embed_pixels(pixels)
        return (embeddings, self.encoder.pixel_regions(pixels)) if self.localizes else embeddings


class _TextBranch(nn.Module):
    def __init__(self, model: Encoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return self.model.embed_captions(TextBatch(values, lengths))


def branches(model: Model) -> tuple[Branch, ...]:
    """Return the graphs that a model needs: both encoders, and the scores unless they are a dot
    product."""
    return (
        ("image_encoder", "text_encoder")
        if model.single_vector
        else ("image_encoder", "text_encoder", "scores")
    )


def chosen_localizer(model: Model, localizer: Any = None) -> Localizer | None:
    """Return the localizer to export with a model, by default the image encoder's own; None if it
    has none."""
    chosen: AutoLocalizer | Localizer
    chosen = AutoLocalizer() if localizer is None else build("bifocal.localization", localizer)
    return chosen.for_model(model)


def region_localizer(model: Model, localizer: Any = None) -> Localizer | None:
    """Return the localizer of a model if it needs the output "regions" of the image encoder; None
    otherwise."""
    chosen = chosen_localizer(model, localizer)
    served = None if chosen is None else chosen.served()
    return chosen if served and served.vectors == REGIONS else None


def export_encoder(
    model_directory: Path, branch: Branch, file: Path, localizer: Any = None
) -> None:
    """Write one graph of a saved model.

    Outputs: unit ``embeddings`` (batch, d), and ``regions`` (batch, regions, d) if a localizer
    compares regions. A ``GroundingModel`` has ``cells`` (batch, L, R, d), ``sentences`` (batch, d)
    and ``words`` (batch, time, d); a third graph has ``scores`` (images, sentences).
    """
    run_in_fresh_process(_export, model_directory, branch, file, localizer)
    check_shapes(file, input_shapes(load_model(model_directory), branch))


def branch_module(model: Model, branch: Branch, localizer: Any = None) -> nn.Module:
    """Return the module to export, in evaluation mode; its arguments follow ``input_shapes``."""
    encoder = cast(Encoder, model)
    if branch == "scores":
        return LateInteraction(cast(GroundingModel, model)).eval()
    if branch == "text_encoder":
        return _TextBranch(encoder).eval()
    images = _PixelBranch if model.image_encoder.reads_pixels else _FeatureBranch
    return images(encoder, region_localizer(model, localizer)).eval()


def input_shapes(model: Model, branch: Branch) -> dict[str, Shape]:
    """Return the shape of each input of an exported graph, by its name."""
    if branch == "scores":
        dim = model.image_encoder.dim
        return {
            "cells": ("images", "levels", "regions", dim),
            "sentences": ("sentences", dim),
            "words": ("sentences", "time", dim),
        }
    if branch == "text_encoder":
        values = model.text_encoder.input_shape
        return {
            "values": values if model.word_embedding is None else values[:-1],
            "lengths": ("batch",),
        }
    if model.image_encoder.reads_pixels:
        return {"pixels": model.image_encoder.input_shape}
    shape = model.image_encoder.input_shape
    return {"features": shape, "mask": shape[:2]}


def output_names(model: Model, branch: Branch, localizer: Any = None) -> tuple[str, ...]:
    """Return the names of the outputs of an exported graph."""
    if model.single_vector:
        localizes = branch == "image_encoder" and region_localizer(model, localizer) is not None
        return ("embeddings", REGIONS) if localizes else ("embeddings",)
    names: dict[Branch, tuple[str, ...]]
    names = {
        "image_encoder": ("cells",),
        "text_encoder": ("sentences", "words"),
        "scores": ("scores",),
    }
    return names[branch]


def example_inputs(
    model: Model, branch: Branch, batch: int, length: int, seed: int
) -> tuple[Tensor, ...]:
    """Return random inputs of a branch; ``length`` is regions of each level, or words, or enlarges
    an image."""
    generator = torch.Generator().manual_seed(seed)
    shapes = input_shapes(model, branch)
    if branch == "scores":
        return _encodings(model, batch, length, generator)
    if branch == "image_encoder":
        return random_images(
            shapes, batch, length * model.image_encoder.levels_per_image, length, generator
        )
    sizes = {"batch": batch, "time": length}
    size = [sizes[dim] if isinstance(dim, str) else dim for dim in shapes["values"]]
    lengths = _lengths(batch, length, generator)
    if model.word_embedding is None:
        return torch.randn(size, generator=generator), lengths
    words = model.word_embedding.num_embeddings
    return torch.randint(1, words, size, generator=generator) * (
        torch.arange(length) < lengths.unsqueeze(1)
    ), lengths


def _encodings(
    model: Model, batch: int, length: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Return cells of ``batch`` images, and one sentence more, with padding; unit vectors as the
    encoders return."""
    dim, levels, sentences = (
        model.image_encoder.dim,
        model.image_encoder.levels_per_image,
        batch + 1,
    )

    def unit(*shape: int) -> Tensor:
        return torch.nn.functional.normalize(torch.randn(*shape, dim, generator=generator), dim=-1)

    cells = unit(batch, levels, length)
    cells[-1, :, 1:] = 0
    inside = torch.arange(length) < _lengths(sentences, length, generator).unsqueeze(1)
    return cells, unit(sentences), unit(sentences, length) * inside.unsqueeze(2)


def _lengths(batch: int, longest: int, generator: torch.Generator) -> Tensor:
    lengths = torch.randint(1, longest + 1, (batch,), generator=generator)
    lengths[0] = longest
    return lengths


def _export(model_directory: Path, branch: Branch, file: Path, localizer: Any) -> None:
    model = load_model(model_directory)
    shapes = input_shapes(model, branch)
    any_size = "pixels" in shapes or not model.single_vector
    example = example_inputs(model, branch, batch=3, length=4, seed=0)
    module = branch_module(model, branch, localizer)
    write_graph(
        module, example, shapes, output_names(model, branch, localizer), file, any_size=any_size
    )
