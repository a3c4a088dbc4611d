"""Embeddings of sentences, images and features from exported ONNX graphs."""

import base64
import binascii
import json
from collections.abc import Sequence
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image

from bifocal.datasets.images import decode_image
from bifocal.text.tokens import MAX_TOKENS, UNKNOWN, tokenize
from bifocal.text.vocabulary import Vocabulary

Array = NDArray[Any]
INPUTS = ("text", "image", "features")
"""Inputs of a served model: a sentence, the base64 of an image file, the (R, D) features of an image's regions."""
MAX_PIXELS = 50_000_000


class Embedder:
    """The ONNX graphs of a model, and the preprocessing of their inputs.

    Args:
        directory: directory of the graphs, as the stage that exports them writes it.

    Attributes:
        inputs: accepted ``INPUTS``: "text" always; "image" if the graphs cover all preprocessing; "features" unless
            the image encoder reads pixels.
        feature_dim: D of the features (R, D) of an image; None if the graph accepts any.
    """

    def __init__(self, directory: Path) -> None:
        self.images, self.texts = (_session(directory / f"{name}_encoder.onnx") for name in ("image", "text"))
        backbone, preprocessing = directory / "backbone.onnx", directory / "preprocessing.json"
        self.backbone = _session(backbone) if backbone.is_file() else None
        self.preprocessing = json.loads(preprocessing.read_text()) if preprocessing.is_file() else {}
        reads_pixels = [value.name for value in self.images.get_inputs()] == ["pixels"]
        accepted = {"text": True, "image": bool(self.preprocessing), "features": not reads_pixels}
        self.inputs = tuple(name for name in INPUTS if accepted[name])
        dimension = self.images.get_inputs()[0].shape[-1]
        self.feature_dim = None if reads_pixels or not isinstance(dimension, int) else dimension
        self.directory = directory
        vocabulary = directory / Vocabulary.FILE
        self.vocabulary = Vocabulary.load(vocabulary) if vocabulary.is_file() else None

    def embed_sentences(self, sentences: Sequence[str]) -> Array:
        """Return the embeddings (B, d) float32 of B sentences."""
        encode = self._encode_vectors if self.vocabulary is None else self._encode_tokens
        return _run(self.texts, encode(sentences))

    def embed_images(self, images: Sequence[str]) -> Array:
        """Return the embeddings (B, d) float32 of B image files in base64.

        Raises:
            ValueError: a string is not the base64 of an image file.
        """
        pixels = np.stack([read_pixels(image, **self.preprocessing) for image in images])
        if self.backbone is None:
            return _run(self.images, (pixels.astype(np.float32),))
        # Round to float16 as the feature store does, or the embeddings would differ from the evaluated ones.
        return self.embed_features(list(_run(self.backbone, (pixels,)).astype(np.float16)))

    def embed_features(self, features: Sequence[Any]) -> Array:
        """Return the embeddings (B, d) float32 of B arrays (R, D), or nested lists; R may differ."""
        regions = [np.asarray([np.asarray(region) for region in image], dtype=np.float32) for image in features]
        longest = max(len(image) for image in regions)
        padded = np.zeros((len(regions), longest, regions[0].shape[-1]), dtype=np.float32)
        mask = np.zeros((len(regions), longest), dtype=bool)
        for row, image in enumerate(regions):
            padded[row, : len(image)], mask[row, : len(image)] = image, True
        return _run(self.images, (padded, mask))

    def _encode_tokens(self, sentences: Sequence[str]) -> tuple[Array, Array]:
        """Return token ids (B, T), padded with 0, and lengths (B,)."""
        assert self.vocabulary is not None
        ids = [self.vocabulary.encode(tokenize(sentence)[:MAX_TOKENS] or [UNKNOWN]) for sentence in sentences]
        lengths = np.array([len(row) for row in ids], dtype=np.int64)
        values = np.zeros((len(ids), lengths.max()), dtype=np.int64)
        for row, tokens in enumerate(ids):
            values[row, : len(tokens)] = tokens
        return values, lengths

    def _encode_vectors(self, sentences: Sequence[str]) -> tuple[Array, Array]:
        """Return the vectors of a fitted vectorizer, and lengths (B,)."""
        # Vectorizers need torch and the whole library; a model with a vocabulary is served without both.
        vectorizers = import_module("bifocal.text.vectorizers.base")
        values, lengths = vectorizers.load_vectorizer(self.directory / "text").vectorize(sentences)
        return values.numpy(), lengths.numpy()


def read_pixels(encoded: str, size: int, interpolation: str) -> Array:
    """Return the pixels (3, size, size) uint8 of an image file in base64.

    Args:
        size: side of the square that the image is resized to, pixels.
        interpolation: method of Pillow's ``resize``, such as "bicubic".

    Raises:
        ValueError: the string is not the base64 of an image file.
    """
    try:
        image = decode_image(BytesIO(base64.b64decode(encoded, validate=True)), MAX_PIXELS)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"an image cannot be read: {error}; expected the base64 of an image file") from error
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling[interpolation.upper()])
    return np.array(image).transpose(2, 0, 1)


def _session(file: Path) -> onnxruntime.InferenceSession:
    available = onnxruntime.get_available_providers()
    providers = [name for name in ("CUDAExecutionProvider", "CPUExecutionProvider") if name in available]
    return onnxruntime.InferenceSession(file, providers=providers)


def _run(session: onnxruntime.InferenceSession, arrays: tuple[Array, ...]) -> Array:
    names = (value.name for value in session.get_inputs())
    embeddings: Array = session.run(None, dict(zip(names, arrays, strict=True)))[0]
    return embeddings
