"""All that is measured of where things are: pointing, phrase localization, objects of categories."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore
from bifocal.localization import AutoLocalizer
from bifocal.localization.base import Localizer
from bifocal.progress import log_line
from bifocal.registry import build
from bifocal.text.vectorizers.base import FittedVectorizer
from components.evaluate.objects import named_objects, object_figures
from components.evaluate.pointer import Pointer, can_point, embed_texts, model_encoder
from components.evaluate.pointing import Pointing, choose_k, point
from components.evaluate.proposals import are_proposals, phrase_localization
from components.evaluate.spec import EvaluateParams

LOOKED_AT = 8
"""Images whose boxes tell proposals from cells."""


@dataclass(frozen=True)
class Grounded:
    """What was found, or why nothing was.

    Attributes:
        why_not: empty if the model was asked to point.
        figures: of ``metrics.json``: pointing, and phrase_localization and objects where the data allow them.
        precision: AP of each unique phrase, where there are proposals.
    """

    why_not: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    pointer: Pointer | None = None
    pointing: Pointing | None = None
    precision: pd.DataFrame | None = None


def ground(
    params: EvaluateParams, model: Any, features: FeatureStore, reader: FittedVectorizer, whole: Dataset
) -> Grounded:
    """Measure it on the split of ``params``; what must be chosen is chosen on the split val, if that is another."""
    split = whole.split(params.split)
    asked_for: Localizer | AutoLocalizer | None = None
    if params.pointing is not None:
        asked_for = build("bifocal.localization", params.pointing.name, **params.pointing.arguments)
    why_not = can_point(model, asked_for, features, split)
    localizer = None if asked_for is None or why_not else asked_for.for_encoder(model_encoder(model))
    if localizer is None:
        log_line(f"pointing: {why_not}")
        return Grounded(why_not)
    pointer, choice = Pointer(model, localizer, features, reader), dict[str, Any]()
    validation = None if params.split == "val" else whole.split("val")
    candidates = localizer.candidates(embed_texts(model, reader, list(split.phrases["phrase"].iloc[:1])).shape[1])
    if candidates:
        choice = {"k": localizer.k, "chosen_on": 0}
        if validation is not None and len(validation.phrases):
            pointer, choice = choose_k(pointer, candidates, validation, params.seed)
    pointing = point(pointer, split)
    figures: dict[str, Any] = {"pointing": pointing.report(params.resamples, params.seed) | choice}
    precision = None
    if are_proposals(pointer.see(list(split.images["image_id"].iloc[:LOOKED_AT]))):
        figures["phrase_localization"], precision = phrase_localization(pointer, split)
    if len(named_objects(split)):
        figures["objects"] = object_figures(pointer, split, validation)
    return Grounded("", figures, pointer, pointing, precision)
