"""Stage build_index: run."""

import logging
from dataclasses import asdict, replace
from itertools import compress
from pathlib import Path

import numpy as np

from bifocal.datasets import read_dataset
from bifocal.hubness.bank import HubnessBank
from bifocal.onnx.encoders import Embedder
from bifocal.onnx.files import model_hash
from bifocal.search.calibration.caption_relevance import near_rows, relevant_rows
from bifocal.search.calibration.fitting import TooFewPairs, calibrate
from bifocal.search.collection.collection import Collection
from bifocal.search.index.build import (
    HeldOutCaptions,
    IndexSettings,
    build_index,
    index_of_collection,
    measure,
)
from bifocal.search.index.index import SearchIndex
from components.build_index.spec import BuildIndexParams

BATCH = 64
"""Captions per call of the text encoder."""


def run(
    params: BuildIndexParams,
    *,
    dataset: Path,
    embedding: Path,
    onnx: Path,
    collection: Path,
    index: Path,
) -> dict[str, float]:
    """Write the index, and return its size, recall, latency and calibration, which needs enough
    images of "val"."""
    exact = index_of_collection(Collection.open(collection), HubnessBank.read(embedding))
    exact.description.check_model(model_hash(onnx), collection)
    captions = HeldOutCaptions.sample(
        read_dataset(dataset).split("val").captions,
        params.queries,
        params.max_query_words,
        params.seed,
    )
    embedder = Embedder(onnx)
    batches = [
        captions.texts[start : start + BATCH] for start in range(0, len(captions.texts), BATCH)
    ]
    queries = np.concatenate(
        [
            np.zeros((0, exact.description.dimension)),
            *(embedder.embed_sentences(batch) for batch in batches),
        ]
    )
    settings = IndexSettings(
        params.factory, params.memory_mb, params.latency_ms, params.recall, seed=params.seed
    )
    built = build_index(exact, settings, queries)
    known = captions.of(built)
    texts, own = (list(compress(values, known)) for values in (captions.texts, captions.item_ids))
    rows = [built.row(item_id) for item_id in own]
    described, near = relevant_rows(built.items, texts, rows), near_rows(built, texts, rows)
    try:
        built.calibration = calibrate(built, queries[known], own, described, near)
    except TooFewPairs as error:
        logging.getLogger(__name__).warning("results have no probability: %s", error)
    built.write(index)
    measured = measure(SearchIndex.open(index), queries, index)
    replace(built.description, measured=measured).write(index)
    metrics = {
        "items": float(len(built)),
        **{name: float(value) for name, value in asdict(measured).items()},
    }
    if built.calibration is not None:
        calibration = built.calibration
        metrics |= {
            "calibration_error": calibration.error,
            "false_positive_rate": calibration.false_positive_rate,
            "relevant_found": calibration.recall,
        }
        if calibration.presence is not None:
            metrics |= {
                "absent_found": calibration.presence.false_positive_rate,
                "present_found": calibration.presence.recall,
            }
    return metrics
