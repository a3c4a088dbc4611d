"""Stage vectorize_captions: run."""

from pathlib import Path

import pandas as pd

from bifocal.datasets import read_dataset
from bifocal.registry import build
from bifocal.text.vectorizers.base import Vectorizer, training_documents, write_text
from bifocal.training.pretraining.elmo import pretrain_elmo
from components.vectorize_captions.spec import VectorizeCaptionsParams


def run(params: VectorizeCaptionsParams, *, dataset: Path, text: Path) -> dict[str, float]:
    """Fit the vectorizer on the captions of the split "train" and write the captions of every
    split."""
    tables = read_dataset(dataset)
    vectorizer: Vectorizer = build(
        "bifocal.text.vectorizers", params.vectorizer, train=pretrain_elmo
    )
    train = tables.split("train").captions
    documents = training_documents(vectorizer, train["image_id"].tolist(), train["text"].tolist())
    metrics = vectorizer.fit(documents, params.seed, text / "checkpoints")
    captions = pd.concat([tables.captions, tables.corrections]).drop_duplicates("caption_id")
    return metrics | write_text(
        text, vectorizer, captions["caption_id"].tolist(), captions["text"].tolist()
    )
