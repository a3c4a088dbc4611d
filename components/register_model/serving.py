"""The registered model: sentences, images or features in, embeddings out. Served without torch, by onnxruntime."""

import base64
import binascii
import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from bifocal.datasets.images import decode_image
from bifocal.text.tokens import MAX_TOKENS, UNKNOWN, tokenize
from bifocal.text.vocabulary import Vocabulary

Array = NDArray[Any]
COLUMNS = ("text", "image", "features")
MAX_PIXELS = 50_000_000


class Embedder:
    """The ONNX graphs behind one ``predict``.

    Args:
        directory: an ``onnx`` artifact.

    Attributes:
        columns: what it takes: "text"; "image", if the graphs see all that was done to one; "features", unless the
            image encoder reads pixels.
    """

    def __init__(self, directory: Path) -> None:
        self.images, self.texts = (_session(directory / f"{name}_encoder.onnx") for name in ("image", "text"))
        backbone, preprocessing = directory / "backbone.onnx", directory / "preprocessing.json"
        self.backbone = _session(backbone) if backbone.is_file() else None
        self.preprocessing = json.loads(preprocessing.read_text()) if preprocessing.is_file() else {}
        reads_pixels = [value.name for value in self.images.get_inputs()] == ["pixels"]
        possible = {"text": True, "image": bool(self.preprocessing), "features": not reads_pixels}
        self.columns = tuple(name for name in COLUMNS if possible[name])
        self.directory = directory
        vocabulary = directory / Vocabulary.FILE
        self.vocabulary = Vocabulary.load(vocabulary) if vocabulary.is_file() else None

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """One embedding for each row, which has one of ``columns``.

        Args:
            model_input: columns ``text``, a sentence, ``image``, the base64 of an image file, and ``features``, the
                (R, D) features of an image's regions; the others are null in each row, or not there.

        Returns:
            column ``embedding``, lists of d numbers, of unit norm.

        Raises:
            ValueError: a row has none of them, several, or one that is not taken; or no image that can be read.
        """
        if not set(COLUMNS) & set(model_input.columns):
            # MLflow takes the columns away that the signature lacks, and with the last of them the rows.
            raise ValueError(f"no row has {' or '.join(self.columns)}; columns of other names are not read")
        absent = pd.Series([None] * len(model_input), index=model_input.index, dtype=object)
        columns = [model_input.get(name, absent) for name in COLUMNS]
        given = np.array([column.notna().to_numpy() for column in columns])
        wrong = np.flatnonzero(given.sum(axis=0) != 1)
        if len(wrong):
            has = " and ".join(np.array(COLUMNS)[given[:, wrong[0]]]) or "none"
            raise ValueError(f"row {wrong[0]} has {has}, expected one of {', '.join(self.columns)}")
        for name, mask in zip(COLUMNS, given, strict=True):
            if mask.any() and name not in self.columns:
                raise ValueError(
                    f"row {np.flatnonzero(mask)[0]} has {name}; this model takes {', '.join(self.columns)}"
                )
        embeddings: list[list[float]] = [[]] * len(model_input)
        embedders = (self.embed_sentences, self.embed_images, self.embed_features)
        for column, mask, embed in zip(columns, given, embedders, strict=True):
            rows = np.flatnonzero(mask)
            if len(rows):
                for row, embedding in zip(rows, embed(column.iloc[rows].tolist()), strict=True):
                    embeddings[row] = embedding.tolist()
        return pd.DataFrame({"embedding": embeddings}, index=model_input.index)

    def embed_sentences(self, sentences: Sequence[str]) -> Array:
        """(B, d) float32."""
        if self.vocabulary is None:
            # Word ids need no more than a vocabulary; what else a text encoder reads needs bifocal itself.
            from bifocal.text.vectorizers.base import load_vectorizer

            values, lengths = (
                tensor.numpy() for tensor in load_vectorizer(self.directory / "text").vectorize(sentences)
            )
        else:
            ids = [self.vocabulary.encode(tokenize(sentence)[:MAX_TOKENS] or [UNKNOWN]) for sentence in sentences]
            lengths = np.array([len(row) for row in ids], dtype=np.int64)
            values = np.zeros((len(ids), lengths.max()), dtype=np.int64)
            for row, tokens in enumerate(ids):
                values[row, : len(tokens)] = tokens
        return _run(self.texts, (values, lengths))

    def embed_images(self, images: Sequence[str]) -> Array:
        """(B, d) float32 from the base64 of B image files, seen as ``extract_features`` sees them."""
        pixels = np.stack([self._pixels(image) for image in images])
        if self.backbone is None:
            return _run(self.images, (pixels.astype(np.float32),))
        # float16 as in the store.
        return self.embed_features(list(_run(self.backbone, (pixels,)).astype(np.float16)))

    def _pixels(self, encoded: str) -> Array:
        try:
            image = decode_image(BytesIO(base64.b64decode(encoded, validate=True)), MAX_PIXELS)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"an image cannot be read: {error}; expected the base64 of an image file") from error
        size = (self.preprocessing["size"],) * 2
        if image.size != size:
            image = image.resize(size, Image.Resampling[self.preprocessing["interpolation"].upper()])
        return np.array(image).transpose(2, 0, 1)

    def embed_features(self, features: Sequence[Any]) -> Array:
        """(B, d) float32 from B arrays (R, D), R differing."""
        regions = [np.asarray(_nested(image), dtype=np.float32) for image in features]
        most = max(len(image) for image in regions)
        padded = np.zeros((len(regions), most, regions[0].shape[-1]), dtype=np.float32)
        mask = np.zeros((len(regions), most), dtype=bool)
        for row, image in enumerate(regions):
            padded[row, : len(image)], mask[row, : len(image)] = image, True
        return _run(self.images, (padded, mask))


def _session(file: Path) -> onnxruntime.InferenceSession:
    available = onnxruntime.get_available_providers()
    providers = [name for name in ("CUDAExecutionProvider", "CPUExecutionProvider") if name in available]
    return onnxruntime.InferenceSession(file, providers=providers)


def _run(session: onnxruntime.InferenceSession, arrays: tuple[Array, ...]) -> Array:
    names = (value.name for value in session.get_inputs())
    embeddings: Array = session.run(None, dict(zip(names, arrays, strict=True)))[0]
    return embeddings


def _nested(image: Any) -> list[Any]:
    return [np.asarray(region) for region in image]


def _load_pyfunc(data_path: str) -> Embedder:
    """What MLflow calls: the loader of a model that is no pickle."""
    return Embedder(Path(data_path))
