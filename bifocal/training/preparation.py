"""Data of a training in one call: dataset, features and text of a corpus, for scripts and
notebooks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bifocal.datasets import Dataset, read_dataset, write_dataset
from bifocal.datasets.base import CorpusReader
from bifocal.durable import json_digest, write_once
from bifocal.features import FeatureWriter
from bifocal.features.extraction import write_features
from bifocal.onnx.image_limits import max_pixels
from bifocal.registry import as_mapping, build, split
from bifocal.text.vectorizers.base import Vectorizer, training_documents, write_text
from bifocal.training.inputs import TrainingInputs
from bifocal.training.pretraining.elmo import pretrain_elmo
from bifocal.training.weights.source import open_source

MAX_REJECTED = 0.01
IMAGES_PER_FORWARD = 32


def prepare_inputs(
    home: Path | str, *, corpus: Any, extractor: Any, weights: Any, vectorizer: Any, seed: int = 0
) -> TrainingInputs:
    """Return dataset, features and text of a corpus; write them below ``home``.

    A second call with the same references opens what the first has written; delete ``home`` after a
    change of code or files. At most 1 % of the entries of the corpus may be broken.

    Example::

        inputs = prepare_inputs(
            "runs/mine",
            corpus={"name": "Scenes", "train": 200, "val": 50, "test": 50},
            extractor={"name": "Grid", "backbone": "resnet10t", "size": 64},
            weights={"name": "TrainOnPhrases", "epochs": 4, "min_count": 3},
            vectorizer={"name": "Word2Vec", "dim": 32},
        )
    """
    home = Path(home)
    made_from = [as_mapping(corpus), seed]
    folder = _once(home, "dataset", made_from, lambda folder: _write_dataset(folder, corpus, seed))
    dataset = read_dataset(folder)
    features = _once(
        home,
        "features",
        [*made_from, as_mapping(extractor), as_mapping(weights)],
        lambda folder: _write_features(folder, dataset, extractor, weights, seed),
    )
    text = _once(
        home,
        "text",
        [*made_from, as_mapping(vectorizer)],
        lambda folder: _write_text(folder, dataset, vectorizer, seed),
    )
    return TrainingInputs.open(folder, features, text)


def _once(home: Path, name: str, made_from: list[Any], write: Callable[[Path], None]) -> Path:
    folder = home / f"{name}-{json_digest(made_from)[:10]}"
    write_once(folder, write)
    return folder


def _write_dataset(folder: Path, corpus: Any, seed: int) -> None:
    reader: CorpusReader = build("bifocal.datasets.corpora", corpus, seed=seed)
    write_dataset(
        folder,
        split(corpus)[0],
        reader.read(folder / "images"),
        copy_images=True,
        max_pixels=max_pixels(),
        max_rejected_fraction=MAX_REJECTED,
    )


def _write_features(
    folder: Path, dataset: Dataset, extractor: Any, weights: Any, seed: int
) -> None:
    source, metadata, _ = open_source(
        extractor, weights, dataset, folder, batch_size=IMAGES_PER_FORWARD, seed=seed
    )
    image_ids = [str(image_id) for image_id in dataset.images["image_id"]]
    writer = FeatureWriter(folder, regions=source.regions, dim=source.dim, metadata=metadata)
    write_features(source.read(image_ids), writer, total=len(image_ids))


def _write_text(folder: Path, dataset: Dataset, ref: Any, seed: int) -> None:
    vectorizer: Vectorizer = build("bifocal.text.vectorizers", ref, train=pretrain_elmo)
    train, captions = dataset.split("train").captions, dataset.captions
    documents = training_documents(vectorizer, train["image_id"].tolist(), train["text"].tolist())
    vectorizer.fit(documents, seed, folder / "checkpoints")
    write_text(folder, vectorizer, captions["caption_id"].tolist(), captions["text"].tolist())
