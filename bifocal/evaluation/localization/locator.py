"""Choice of a model's localizer."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bifocal.datasets import Dataset
from bifocal.draws import drawn_rows
from bifocal.evaluation.base import Subject
from bifocal.localization import AutoLocalizer
from bifocal.localization.base import Localizer
from bifocal.models.phrase_locator import PhraseLocator, point_at_phrases

AnyLocalizer = Localizer | AutoLocalizer
MAX_TUNING_PHRASES = 5000


@dataclass(frozen=True)
class ChosenLocator:
    """Locator for a subject, and how its k was tuned; ``tuning`` is empty if the localizer has no k
    to tune."""

    locator: PhraseLocator
    tuning: dict[str, Any]


def pointing_skip_reason(subject: Subject, localizer: AnyLocalizer | None) -> str | None:
    """Return why ``subject`` cannot locate phrases; None if it can."""
    if not len(subject.split.phrases):
        return "The split has no phrases with boxes."
    if _for_model(subject, localizer) is None:
        return f"{subject.encoder_name} has no localizer."
    if not subject.features.has_boxes:
        return "The features have no boxes."
    return None


def choose_locator(subject: Subject, localizer: AnyLocalizer | None) -> ChosenLocator:
    """Return the locator of ``subject``, its k tuned on ``val`` unless ``val`` is evaluated or has
    no phrases."""
    return subject.cached(("locator", localizer), lambda: _choose(subject, localizer))


def _choose(subject: Subject, localizer: AnyLocalizer | None) -> ChosenLocator:
    chosen = _for_model(subject, localizer)
    if chosen is None:
        raise ValueError(f"{subject.encoder_name} has no localizer")
    locator = PhraseLocator(subject.model, chosen, subject.features, subject.vectorizer)
    candidates = chosen.candidates(subject.model.image_encoder.dim)
    if not candidates:
        return ChosenLocator(locator, {})
    if subject.validation is None or not len(subject.validation.phrases):
        return ChosenLocator(locator, {"k": chosen.k, "chosen_on": 0})
    return tune_k(locator, candidates, subject.validation, subject.seed)


def _for_model(subject: Subject, localizer: AnyLocalizer | None) -> Localizer | None:
    return (localizer or AutoLocalizer()).for_model(subject.model)


def tune_k(
    locator: PhraseLocator, candidates: Mapping[int, Localizer], dataset: Dataset, seed: int
) -> ChosenLocator:
    """Return the locator whose k hits most of ``MAX_TUNING_PHRASES`` drawn phrases; ties choose the
    smallest k."""
    phrases = dataset.phrases
    rows = drawn_rows(phrases["image_id"] + " " + phrases["phrase"], MAX_TUNING_PHRASES, seed)
    locators = {k: replace(locator, localizer=candidates[k]) for k in sorted(candidates)}
    accuracy = {
        k: 100 * float(point_at_phrases(candidate, dataset, rows).hits.mean())
        for k, candidate in locators.items()
    }
    best = max(accuracy, key=lambda k: (accuracy[k], -k))
    by_name = {str(k): value for k, value in accuracy.items()}
    return ChosenLocator(
        locators[best], {"k": best, "chosen_on": len(rows), "accuracy_of_k": by_name}
    )
