"""The encoders of an exported model: sentences, images and features to the outputs of their ONNX
graphs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bifocal.onnx.files import read_json, read_whole
from bifocal.onnx.pixels import ImageFile, read_pixels, tried
from bifocal.onnx.sessions import Array, open_session, run_graph
from bifocal.onnx.text.sentences import SentenceReader
from bifocal.onnx.towers import graph_file, is_towers, read_preprocessing

INPUTS = ("text", "image", "features")
"""Inputs of a served model: a sentence, an ``ImageFile``, the (R, D) features of an image's
regions."""
SCORES = "scores.onnx"
Captions = tuple[Array, Array]
"""M encoded captions: sentences (M, d) and words (M, T, d), zero after the end of a sentence."""


class ImageGraph:
    """ONNX graph with the preprocessing of its ``inputs``, "image" or "features"; ``feature_dim``
    None accepts any."""

    def __init__(self, directory: Path, file: str, threads: int = 0) -> None:
        self.images = open_session(graph_file(directory, file), threads)
        backbone, preprocessing = directory / "backbone.onnx", directory / "preprocessing.json"
        self.backbone = open_session(backbone, threads) if backbone.is_file() else None
        self.preprocessing: dict[str, Any] = {}
        if preprocessing.is_file():
            self.preprocessing = read_whole(preprocessing, lambda path: tried(read_json(path)))
        self.mean, self.std = np.zeros((), np.float32), np.ones((), np.float32)
        if is_towers(directory):
            self.preprocessing, self.mean, self.std = read_whole(directory, read_preprocessing)
        self.reads_pixels = [value.name for value in self.images.get_inputs()] in (
            ["pixels"],
            ["image"],
        )
        accepted = {
            "text": False,
            "image": bool(self.preprocessing),
            "features": not self.reads_pixels,
        }
        self.inputs = tuple(name for name in INPUTS if accepted[name])
        side, size = (
            (self.backbone or self.images).get_inputs()[0].shape[-1],
            self.preprocessing.get("size"),
        )
        if accepted["image"] and isinstance(side, int) and side != size:
            raise ValueError(
                f"{preprocessing} has the size {size}, but the graph reads {side} pixels: "
                "export again"
            )
        dimension = self.images.get_inputs()[0].shape[-1]
        self.feature_dim = (
            None if self.reads_pixels or not isinstance(dimension, int) else dimension
        )

    def read_images(self, images: Sequence[ImageFile]) -> list[Array]:
        """Return the inputs of the graph for B image files: features (R, D), or pixels (3, H,
        W)."""
        return self.read_resized([read_pixels(image, **self.preprocessing) for image in images])

    def read_resized(self, pixels: Sequence[Array]) -> list[Array]:
        """Return the inputs of the graph for B preprocessed images (3, H, W) uint8; see
        ``read_images``."""
        if self.backbone is None:
            return [(image.astype(np.float32) - self.mean) / self.std for image in pixels]
        # Round to float16 as the feature store does, or the embeddings would differ from the
        # evaluated ones.
        return list(run_graph(self.backbone, (np.stack(pixels),))[0].astype(np.float16))

    def encode_images(self, images: Sequence[ImageFile]) -> Array:
        """Return the output of the graph for B image files."""
        return self.encode_inputs(self.read_images(images))

    def encode_inputs(self, inputs: Sequence[Any], output: str | None = None) -> Array:
        """Return an output of the graph, by default the first, for B features (R, D), also as
        lists, or pixels."""
        return self.run(inputs, output)[0]

    def run(self, inputs: Sequence[Any], output: str | Sequence[str] | None = None) -> list[Array]:
        """Return outputs (see ``run_graph``) for B features (R, D) or pixels (3, H, W); padding
        changes features."""
        if not self.reads_pixels:
            return run_graph(self.images, pad_features(inputs), output)
        groups: dict[tuple[int, ...], list[int]] = {}
        for number, image in enumerate(inputs):
            groups.setdefault(image.shape, []).append(number)
        results = [
            run_graph(self.images, (np.stack([inputs[number] for number in numbers]),), output)
            for numbers in groups.values()
        ]
        order = np.argsort(np.concatenate(list(groups.values())))
        return [np.concatenate(parts)[order] for parts in zip(*results, strict=True)]


class Encoders(ImageGraph):
    """The ONNX graphs of a model's encoders, and the preprocessing of their inputs."""

    def __init__(self, directory: Path, threads: int = 0) -> None:
        super().__init__(directory, "image_encoder.onnx", threads)
        self.texts = open_session(graph_file(directory, "text_encoder.onnx"), threads)
        self.sentences = read_whole(directory, SentenceReader)
        self.inputs = ("text", *self.inputs)

    def encode_sentences(self, sentences: Sequence[str]) -> list[Array]:
        """Return the outputs of the text encoder for B sentences."""
        return run_graph(self.texts, self.sentences.read(sentences))


class Embedder(Encoders):
    """A model with one vector per sentence and per image; see ``Encoders``."""

    def embed_sentences(self, sentences: Sequence[str]) -> Array:
        """Return the embeddings (B, d) float32 of B sentences."""
        return self.encode_sentences(sentences)[0] if len(sentences) else self._none()

    def unknown_words(self, sentence: str) -> list[str]:
        """Return the words of a sentence that the model does not know; ``ValueError`` if it knows
        none of them."""
        return self.sentences.unknown(sentence)

    def embed_images(self, images: Sequence[ImageFile]) -> Array:
        """Return the embeddings (B, d) float32 of B image files: their bytes, or base64."""
        return self.encode_images(images) if len(images) else self._none()

    def _none(self) -> Array:
        return np.zeros((0, int(self.texts.get_outputs()[0].shape[-1])), np.float32)

    def embed_pixels(self, pixels: Sequence[Array]) -> Array:
        """Return the embeddings (B, d) of B preprocessed images, see ``decode_pixels``."""
        return self.encode_inputs(self.read_resized(pixels))


class PairScorer(Encoders):
    """A model that compares words with cells, without single vectors; features (R, D) are R / L
    cells per level."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.scores = open_session(directory / SCORES)
        self.levels = int(self.images.get_outputs()[0].shape[1])

    def encode_captions(self, sentences: Sequence[str]) -> Captions:
        """Encode M sentences."""
        vectors, words = self.encode_sentences(sentences)
        return vectors, words

    def score(self, cells: Array, captions: Captions) -> Array:
        """Return the scores (N, M) float32 of N images, whose cells are (N, L, R, d), and M
        captions."""
        return run_graph(self.scores, (cells, *captions))[0]


def scores_pairs(directory: Path) -> bool:
    """Return whether an exported model needs ``PairScorer``: it has no vector for a sentence or an
    image."""
    return (directory / SCORES).is_file()


def pad_features(features: Sequence[Any]) -> tuple[Array, Array]:
    """Return features (B, R, D) float32 and their mask (B, R) for B arrays (R, D), or nested lists;
    R may differ."""
    regions = [
        np.asarray([np.asarray(region) for region in image], dtype=np.float32) for image in features
    ]
    longest = max(len(image) for image in regions)
    padded = np.zeros((len(regions), longest, regions[0].shape[-1]), dtype=np.float32)
    mask = np.zeros((len(regions), longest), dtype=bool)
    for row, image in enumerate(regions):
        padded[row, : len(image)], mask[row, : len(image)] = image, True
    return padded, mask
