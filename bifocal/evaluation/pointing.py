"""Points that a model predicts for phrases, and the choice of its localizer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bifocal.datasets import Dataset
from bifocal.evaluation.base import Subject
from bifocal.evaluation.phrase_locator import BATCH, PhraseLocator, phrases_in_context
from bifocal.localization import AutoLocalizer, peak_points
from bifocal.localization.base import Localizer
from bifocal.metrics import pointing_hits

AnyLocalizer = Localizer | AutoLocalizer
MAX_TUNING_PHRASES = 5000


@dataclass(frozen=True)
class PointingResult:
    """Phrases and the point that the model predicts for each.

    Attributes:
        phrases: rows of ``phrases_in_context``.
        sizes: (P, 2), width and height of each phrase's image, pixels.
        points: (P, 2), x y in pixels.
        hits: (P,) bool.
    """

    phrases: pd.DataFrame
    sizes: NDArray[np.float64]
    points: NDArray[np.float64]
    hits: NDArray[np.bool_]


@dataclass(frozen=True)
class ChosenLocator:
    """Locator for a subject, and how its k was tuned; ``tuning`` is empty if the localizer has no k to tune."""

    locator: PhraseLocator
    tuning: dict[str, Any]


def pointing_skip_reason(subject: Subject, localizer: AnyLocalizer | None) -> str | None:
    """Return why ``subject`` cannot locate phrases; None if it can.

    Args:
        localizer: None for the encoder's own.
    """
    if not len(subject.split.phrases):
        return "The split has no phrases with boxes."
    if _for_model(subject, localizer) is None:
        return f"{subject.encoder_name} has no localizer."
    if not subject.features.pixels and subject.features.gather([0]).boxes.isnan().all():
        return "The features have no boxes."
    return None


def choose_locator(subject: Subject, localizer: AnyLocalizer | None) -> ChosenLocator:
    """Return the locator of ``subject``; a localizer with candidates for its k is tuned on the split ``val``.

    Its default k is kept if ``val`` itself is evaluated, or has no phrases.

    Args:
        localizer: None for the encoder's own.
    """
    return subject.cached(("locator", localizer), lambda: _choose(subject, localizer))


def _choose(subject: Subject, localizer: AnyLocalizer | None) -> ChosenLocator:
    chosen = _for_model(subject, localizer)
    if chosen is None:
        raise ValueError(f"{subject.encoder_name} has no localizer")
    locator = PhraseLocator(subject.model, chosen, subject.features, subject.vectorizer)
    candidates = chosen.candidates(subject.model.image_encoder.dim)
    if not candidates:
        return ChosenLocator(locator, {})
    validation = None if subject.split_name == "val" else subject.dataset.split("val")
    if validation is None or not len(validation.phrases):
        return ChosenLocator(locator, {"k": chosen.k, "chosen_on": 0})
    return tune_k(locator, candidates, validation, subject.seed)


def _for_model(subject: Subject, localizer: AnyLocalizer | None) -> Localizer | None:
    return (localizer or AutoLocalizer()).for_model(subject.model)


def point_at_phrases(locator: PhraseLocator, dataset: Dataset, rows: Sequence[int] | None = None) -> PointingResult:
    """Predict a point for the phrases of ``dataset``, or for the phrases in ``rows``."""
    phrases = phrases_in_context(dataset)
    if rows is not None:
        phrases = phrases.iloc[list(rows)]
    sizes = dataset.images.set_index("image_id").loc[phrases["image_id"], ["width", "height"]].to_numpy(np.float64)
    batches = [
        peak_points(locator.locate(phrases.iloc[start : start + BATCH])).numpy()
        for start in range(0, len(phrases), BATCH)
    ]
    predicted = np.concatenate(batches).astype(np.float64) * sizes
    return PointingResult(phrases, sizes, predicted, pointing_hits(predicted, list(phrases["boxes"])))


def tune_k(locator: PhraseLocator, candidates: Mapping[int, Localizer], dataset: Dataset, seed: int) -> ChosenLocator:
    """Return the locator with the localizer that hits most phrases of ``dataset``; a tie chooses the smallest k.

    Args:
        candidates: localizers by their k.
        dataset: validation split; at most ``MAX_TUNING_PHRASES`` of its phrases are drawn.

    Returns:
        with tuning ``{"k": ..., "chosen_on": phrases, "accuracy_of_k": {k: percent}}``.
    """
    drawn = np.random.default_rng(seed).permutation(len(dataset.phrases))[:MAX_TUNING_PHRASES]
    rows = sorted(drawn.tolist())
    locators = {k: replace(locator, localizer=candidates[k]) for k in sorted(candidates)}
    accuracy = {
        k: 100 * float(point_at_phrases(candidate, dataset, rows).hits.mean()) for k, candidate in locators.items()
    }
    best = max(accuracy, key=lambda k: (accuracy[k], -k))
    by_name = {str(k): value for k, value in accuracy.items()}
    return ChosenLocator(locators[best], {"k": best, "chosen_on": len(rows), "accuracy_of_k": by_name})
