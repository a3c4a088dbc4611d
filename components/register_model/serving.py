"""The registered model: sentences or features in, embeddings out. Needs onnxruntime, numpy and pandas; no torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
from numpy.typing import NDArray

from bifocal.text.tokens import MAX_TOKENS, UNKNOWN, tokenize
from bifocal.text.vocabulary import Vocabulary

Array = NDArray[Any]


class Embedder:
    """Two ONNX graphs behind one ``predict``.

    Args:
        directory: an ``onnx`` artifact.
    """

    def __init__(self, directory: Path) -> None:
        available = onnxruntime.get_available_providers()
        providers = [name for name in ("CUDAExecutionProvider", "CPUExecutionProvider") if name in available]
        self.images, self.texts = (
            onnxruntime.InferenceSession(directory / f"{branch}.onnx", providers=providers)
            for branch in ("image_encoder", "text_encoder")
        )
        self.directory = directory
        vocabulary = directory / Vocabulary.FILE
        self.vocabulary = Vocabulary.load(vocabulary) if vocabulary.is_file() else None

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """One embedding for each row, which has either ``text`` or ``features``.

        Args:
            model_input: column ``text``, a sentence, or column ``features``, the (R, D) features of an image's
                regions, or both columns with one of them null in each row.

        Returns:
            column ``embedding``, lists of d numbers, of unit norm.

        Raises:
            ValueError: a row has neither, or both.
        """
        absent = pd.Series([None] * len(model_input), index=model_input.index, dtype=object)
        text, features = (model_input.get(name, absent) for name in ("text", "features"))
        is_text, is_image = text.notna().to_numpy(), features.notna().to_numpy()
        wrong = np.flatnonzero(is_text == is_image)
        if len(wrong):
            has = "both text and features" if is_text[wrong[0]] else "neither text nor features"
            raise ValueError(f"row {wrong[0]} has {has}, expected one of them")
        embeddings: list[list[float]] = [[]] * len(model_input)
        for rows, embed, column in (
            (np.flatnonzero(is_text), self.embed_sentences, text),
            (np.flatnonzero(is_image), self.embed_features, features),
        ):
            if len(rows):
                for row, embedding in zip(rows, embed(column.iloc[rows].tolist()), strict=True):
                    embeddings[row] = embedding.tolist()
        return pd.DataFrame({"embedding": embeddings}, index=model_input.index)

    def embed_sentences(self, sentences: Sequence[str]) -> Array:
        """(B, d) float32."""
        if self.vocabulary is None:
            # Word ids need no more than a vocabulary; what else a text encoder reads needs bifocal itself.
            from bifocal.text import load_vectorizer

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

    def embed_features(self, features: Sequence[Any]) -> Array:
        """(B, d) float32 from B arrays (R, D), R differing."""
        regions = [np.asarray(_nested(image), dtype=np.float32) for image in features]
        most = max(len(image) for image in regions)
        padded = np.zeros((len(regions), most, regions[0].shape[-1]), dtype=np.float32)
        mask = np.zeros((len(regions), most), dtype=bool)
        for row, image in enumerate(regions):
            padded[row, : len(image)], mask[row, : len(image)] = image, True
        return _run(self.images, (padded, mask))


def _run(session: onnxruntime.InferenceSession, arrays: tuple[Array, Array]) -> Array:
    names = (value.name for value in session.get_inputs())
    embeddings: Array = session.run(None, dict(zip(names, arrays, strict=True)))[0]
    return embeddings


def _nested(image: Any) -> list[Any]:
    return [np.asarray(region) for region in image]


def _load_pyfunc(data_path: str) -> Embedder:
    """What MLflow calls: the loader of a model that is no pickle."""
    return Embedder(Path(data_path))
