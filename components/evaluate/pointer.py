"""A model that is asked where a phrase is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bifocal.batch import to_device
from bifocal.datasets import Dataset
from bifocal.features import FeatureStore
from bifocal.localization import AutoLocalizer, find_phrase
from bifocal.localization.base import Localizer, RegionScores, RegionVectors
from bifocal.text import tokenize
from bifocal.text.vectorizers.base import FittedVectorizer

BATCH = 256


@dataclass(frozen=True)
class Pointer:
    """A model, what it reads, and how it localizes.

    Attributes:
        localizer: one that fits the model's encoder.
        reader: of phrases and sentences.
    """

    model: Any
    localizer: Localizer
    features: FeatureStore
    reader: FittedVectorizer

    def see(self, image_ids: Sequence[str]) -> RegionVectors:
        """What there is to be looked at in these images."""
        regions = to_device(self.features.gather(self.features.rows(image_ids)), self.model.device)
        with torch.inference_mode():
            return self.localizer.encode(model_encoder(self.model), regions)

    def locate(self, phrases: pd.DataFrame) -> RegionScores:
        """Heatmaps of some phrases, rows of ``asked``, on the CPU."""
        images, place = np.unique(phrases["image_id"].to_numpy(dtype=str), return_inverse=True)
        seen = self.see(images.tolist()).of(torch.from_numpy(place).to(self.model.device))
        texts = embed_texts(self.model, self.reader, list(phrases["phrase"]))
        with torch.inference_mode():
            located = self.localizer.score(seen, texts, self._words(phrases))
        return RegionScores(*(part.float().cpu() for part in located))

    def _words(self, phrases: pd.DataFrame) -> list[Tensor | None]:
        """Of each phrase inside a sentence the vectors of its words there; None for one that is said alone."""
        in_sentences = self.localizer.text_context == "sentence"
        sentences = sorted(set(phrases["sentence"].dropna())) if in_sentences else []
        if not sentences:
            return [None] * len(phrases)
        vectors: dict[str, Tensor] = {}
        with torch.inference_mode():
            for start in range(0, len(sentences), BATCH):
                some = sentences[start : start + BATCH]
                _, words = self.model.embed_captions(to_device(self.reader.vectorize(some), self.model.device))
                vectors |= dict(zip(some, words, strict=True))
        found: list[Tensor | None] = []
        for phrase, sentence, number in phrases[["phrase", "sentence", "number"]].to_numpy():
            where = None if sentence is None else find_phrase(tokenize(sentence), tokenize(phrase), number)
            # Behind the tokens that are read, a sentence has no words.
            spoken = None if where is None else vectors[sentence][where]
            found.append(spoken if spoken is not None and len(spoken) and spoken.any(dim=1).all() else None)
        return found


def asked(dataset: Dataset) -> pd.DataFrame:
    """The phrases of ``dataset``, with the ``sentence`` that each stands in and, of equal ones there, its ``number``.

    The sentence is None for a phrase without one, and for one that is the whole of it, as in ReferIt: it stands alone.
    """
    texts = dict(zip(dataset.captions["caption_id"], dataset.captions["text"], strict=True))
    sentences = [None if pd.isna(caption) else texts[caption] for caption in dataset.phrases["caption_id"]]
    inside = [
        None if sentence is None or tokenize(sentence) == tokenize(phrase) else sentence
        for sentence, phrase in zip(sentences, dataset.phrases["phrase"], strict=True)
    ]
    number = dataset.phrases.groupby(["caption_id", "phrase"], dropna=False).cumcount()
    return dataset.phrases.assign(sentence=pd.Series(inside, index=dataset.phrases.index, dtype=object), number=number)


def can_point(model: Any, localizer: Localizer | AutoLocalizer | None, features: FeatureStore, dataset: Dataset) -> str:
    """Why the model is not asked to point; empty if it is."""
    if localizer is None:
        return "No pointing was asked for (evaluate.pointing is null)."
    if not len(dataset.phrases):
        return "The split has no phrases with boxes to point at."
    if localizer.for_encoder(model_encoder(model)) is None:
        return f"A {type(model_encoder(model)).__name__} has no localization of its own."
    if not features.pixels and features.gather([0]).boxes.isnan().all():
        return "The features have no boxes, so nothing can be pointed at."
    return ""


def model_encoder(model: Any) -> Any:
    """The image encoder of a model that has one, else the model."""
    return getattr(model, "image_encoder", model)


def embed_texts(model: Any, reader: FittedVectorizer, texts: list[str]) -> Tensor:
    """Embeddings of sentences, phrases or words (T, d), on the model's device; equal ones are read once."""
    unique = sorted(set(texts))
    place = {text: row for row, text in enumerate(unique)}
    with torch.inference_mode():
        found = [
            model.embed_captions(to_device(reader.vectorize(unique[start : start + BATCH]), model.device))
            for start in range(0, len(unique), BATCH)
        ]
    # A grounding model gives the words beside the sentence.
    vectors: Tensor = torch.cat([part[0] if isinstance(part, tuple) else part for part in found])
    return vectors[[place[text] for text in texts]]
