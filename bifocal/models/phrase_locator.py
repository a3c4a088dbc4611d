"""Phrase localization: heatmaps and points of phrases, with or without their sentence as
context."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore
from bifocal.localization.attention import find_phrase
from bifocal.localization.base import Localizer, RegionScores, RegionVectors
from bifocal.localization.heatmaps import has_peak, peak_points
from bifocal.metrics import pointing_hits
from bifocal.models.batch import to_device
from bifocal.text import tokenize
from bifocal.text.vectorizers.base import FittedVectorizer

BATCH = 256


@dataclass(frozen=True)
class PhraseLocator:
    """Model with a localizer that turns its regions and a phrase into a heatmap."""

    model: Any
    localizer: Localizer
    features: FeatureStore
    vectorizer: FittedVectorizer

    def encode(self, image_ids: Sequence[str]) -> RegionVectors:
        """Return the text-independent region vectors of images."""
        regions = to_device(self.features.gather(self.features.rows(image_ids)), self.model.device)
        with torch.inference_mode():
            return self.localizer.encode(self.model.image_encoder, regions)

    def score(
        self, vectors: RegionVectors, texts: Tensor, words: Sequence[Tensor | None] | None = None
    ) -> RegionScores:
        """Return the scores of one text per image on the CPU; ``words`` are vectors of phrases
        inside a sentence."""
        with torch.inference_mode():
            scores = self.localizer.score(vectors, texts, words)
        return RegionScores(*(part.float().cpu() for part in scores))

    def locate(self, phrases: pd.DataFrame) -> RegionScores:
        """Return the region scores of phrases, rows of ``phrases_in_context``, on the CPU."""
        images, rows = np.unique(phrases["image_id"].to_numpy(dtype=str), return_inverse=True)
        vectors = self.encode(images.tolist()).of(torch.from_numpy(rows).to(self.model.device))
        words = self._words(phrases)
        return self.score(vectors, self._texts(list(phrases["phrase"]), words), words)

    def _texts(self, phrases: list[str], words: Sequence[Tensor | None]) -> Tensor:
        """Return the embeddings (T, d) of the phrases; zero for a phrase that is scored by its
        words."""
        alone = [phrase for phrase, vectors in zip(phrases, words, strict=True) if vectors is None]
        if not alone:
            return torch.zeros(len(phrases), self.model.image_encoder.dim, device=self.model.device)
        embedded = embed_texts(self.model, self.vectorizer, alone)
        texts = embedded.new_zeros(len(phrases), embedded.shape[1])
        texts[torch.tensor([vectors is None for vectors in words], device=texts.device)] = embedded
        return texts

    def _words(self, phrases: pd.DataFrame) -> list[Tensor | None]:
        """Return the word vectors of each phrase inside its sentence; None for a phrase without a
        sentence."""
        in_context = self.localizer.text_context == "sentence"
        sentences = sorted(set(phrases["sentence"].dropna())) if in_context else []
        vectors: dict[str, Tensor] = {}
        with torch.inference_mode():
            for start in range(0, len(sentences), BATCH):
                batch = sentences[start : start + BATCH]
                text = to_device(self.vectorizer.vectorize(batch), self.model.device)
                vectors |= dict(zip(batch, self.model.embed_captions(text)[1], strict=True))
        words: list[Tensor | None] = []
        for phrase, sentence, occurrence in phrases[
            ["phrase", "sentence", "occurrence"]
        ].to_numpy():
            tokens = None
            if sentence in vectors:
                span = find_phrase(tokenize(sentence), tokenize(phrase), occurrence)
                tokens = None if span is None else vectors[sentence][span]
            # Tokens after the vectorizer's limit have no embedding: treat such a phrase as one
            # without a sentence.
            complete = tokens is not None and len(tokens) > 0 and bool(tokens.any(dim=1).all())
            words.append(tokens if complete else None)
        return words


def phrases_in_context(dataset: Dataset) -> pd.DataFrame:
    """Return the phrases with ``sentence`` (None if it equals the phrase) and ``occurrence`` in it,
    from 0."""
    texts = dict(zip(dataset.captions["caption_id"], dataset.captions["text"], strict=True))
    sentences = [
        None if pd.isna(caption) else texts[caption] for caption in dataset.phrases["caption_id"]
    ]
    context = [
        None if sentence is None or tokenize(sentence) == tokenize(phrase) else sentence
        for sentence, phrase in zip(sentences, dataset.phrases["phrase"], strict=True)
    ]
    occurrence = dataset.phrases.groupby(["caption_id", "phrase"], dropna=False).cumcount()
    column = pd.Series(context, index=dataset.phrases.index, dtype=object)
    return dataset.phrases.assign(sentence=column, occurrence=occurrence)


def embed_texts(model: Any, vectorizer: FittedVectorizer, texts: list[str]) -> Tensor:
    """Return the embeddings (T, d) of sentences, phrases or words; equal texts are encoded once."""
    unique = sorted(set(texts))
    row_of_text = {text: row for row, text in enumerate(unique)}
    with torch.inference_mode():
        batches = [
            model.embed_captions(
                to_device(vectorizer.vectorize(unique[start : start + BATCH]), model.device)
            )
            for start in range(0, len(unique), BATCH)
        ]
    # A grounding model returns sentences and words.
    vectors: Tensor = torch.cat(
        [batch[0] if isinstance(batch, tuple) else batch for batch in batches]
    )
    return vectors[[row_of_text[text] for text in texts]]


@dataclass(frozen=True)
class PointingResult:
    """Phrases, the sizes of their images, the predicted points in pixels, and whether they are
    hits.

    ``corner_hits`` has the hits of the authors' code of BEAN: the upper left corner of the best
    cell, inside a box.
    """

    phrases: pd.DataFrame
    sizes: NDArray[np.float64]
    points: NDArray[np.float64]
    hits: NDArray[np.bool_]
    corner_hits: NDArray[np.bool_]


def point_at_phrases(
    locator: PhraseLocator,
    dataset: Dataset,
    rows: Sequence[int] | None = None,
    min_area: float = 0.0,
) -> PointingResult:
    """Predict a point for the phrases of ``dataset``, or for the phrases in ``rows``.

    Phrases are left out if the rectangle around their boxes covers less than ``min_area`` of the
    image. A phrase without a peak is a miss, as in the code of Akbari et al., CVPR 2019.

    Raises:
        ValueError: no phrase is left.
    """
    phrases = phrases_in_context(dataset)
    if rows is not None:
        phrases = phrases.iloc[list(rows)]
    sizes = (
        dataset.images.set_index("image_id")
        .loc[phrases["image_id"], ["width", "height"]]
        .to_numpy(np.float64)
    )
    large = _areas(list(phrases["boxes"])) >= min_area * sizes.prod(axis=1)
    if not large.any():
        raise ValueError(
            f"no phrase has boxes that cover {min_area:g} of the image: lower min_area"
        )
    phrases, sizes = phrases[large], sizes[large]
    batches = [
        locator.locate(phrases.iloc[start : start + BATCH])
        for start in range(0, len(phrases), BATCH)
    ]
    centers, corners = (
        np.concatenate([peak_points(scores, corner).numpy() for scores in batches]).astype(
            np.float64
        )
        * sizes
        for corner in (False, True)
    )
    supported, boxes = (
        np.concatenate([has_peak(scores).numpy() for scores in batches]),
        list(phrases["boxes"]),
    )
    hits, corner_hits = pointing_hits(centers, boxes), pointing_hits(corners, boxes, edges=False)
    return PointingResult(phrases, sizes, centers, supported & hits, supported & corner_hits)


def _areas(boxes: Sequence[NDArray[np.floating]]) -> NDArray[np.float64]:
    """Return the area of the smallest rectangle around the boxes (n, 4) of each phrase."""
    around = np.array(
        [[*truth[:, :2].min(axis=0), *truth[:, 2:].max(axis=0)] for truth in boxes],
        dtype=np.float64,
    )
    areas: NDArray[np.float64] = (around[:, 2:] - around[:, :2]).prod(axis=1)
    return areas
