"""How vectorize_captions works."""

import inspect
from pathlib import Path

from bifocal.datasets import read_dataset
from bifocal.registry import build, get
from bifocal.text.vectorizers.base import Vectorizer, write_text
from components.vectorize_captions.spec import VectorizeCaptionsParams

PACKAGE = "bifocal.text.vectorizers"


def run(params: VectorizeCaptionsParams, *, dataset: Path, text: Path) -> dict[str, float]:
    """Fit the vectorizer on the captions of the split "train" alone, and write those of every split.

    Raises:
        ValueError: ``source`` is given to a vectorizer that reads none.
    """
    tables = read_dataset(dataset)
    vectorizer = build_vectorizer(params)
    learnt = vectorizer.fit(tables.split("train").captions["text"].tolist(), params.seed)
    captions = tables.captions
    return learnt | write_text(text, vectorizer, captions["caption_id"].tolist(), captions["text"].tolist())


def build_vectorizer(params: VectorizeCaptionsParams) -> Vectorizer:
    """The vectorizer with its own arguments and the source.

    Raises:
        ValueError: it takes no source, and one is given.
    """
    name, given = params.vectorizer.name, {}
    if params.source is not None:
        if "source" not in inspect.signature(get(PACKAGE, name)).parameters:
            raise ValueError(
                f"vectorize_captions.source is {str(params.source)!r}, but {name} takes none: set it to null"
            )
        given = {"source": params.source}
    vectorizer: Vectorizer = build(PACKAGE, name, **params.vectorizer.arguments, **given)
    return vectorizer
