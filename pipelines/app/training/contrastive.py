"""``bifocal train --encoder`` against the encoder without training; heads that are no better are not exported."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pipelines.app.run_folder import ARTIFACTS, write_parameters
from pipelines.app.stages import run_stages, stages_of_run
from runtime import parameters
from runtime.artifacts import artifact_hash

if TYPE_CHECKING:
    from bifocal.datasets import Dataset

SMALL = "small"
KS, LEVEL = (1, 5, 10), 0.95
FILE = "zero_shot.json"
HEADS = "with trained heads", "the trained heads are kept", "the encoder is kept unchanged"
MODEL = (
    "with the trained model", "the trained model is exported",
    "the trained model is exported, and 'bifocal index' with the encoder small may find as much",
)  # fmt: skip
"""What was trained, and what a clear gain and no clear gain lead to."""


def contrastive_sections(encoder: str, weights: Path | None) -> dict[str, Any]:
    """Return the parameters that put a contrastive model in the place of the one in ``recipes/own/clip.yaml``."""
    from bifocal.backbones.open_clip import OpenClipBackbone
    from pipelines.app.encoders import torch_encoder

    name, file = torch_encoder(encoder, weights)
    named = {"model": name, "tag": None}
    return {
        "extract_features": {"extractor": named, "weights": {"name": "FromFile", "path": str(file)}},
        "vectorize_captions": {"vectorizer": {**named, "path": str(file)}},
        "train_embedding": {"model": {"dim": OpenClipBackbone(name, None).dim}},
    }


def keep_better(folder: Path, values: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Train and evaluate heads; return the parameters of the better model, and a sentence that compares both.

    A second call takes the first one's choice, unless images or parameters have changed.
    """
    stages = stages_of_run()
    run_stages(folder, values, stages[:1])
    key = {"values": values, "dataset": artifact_hash(folder / ARTIFACTS / "dataset")}
    known = json.loads((folder / FILE).read_text()) if (folder / FILE).is_file() else {}
    if known.get("key") != key:
        names = [stage.name for stage in stages]
        run_stages(folder, values, stages[: names.index("evaluate") + 1])
        ranks = pd.read_parquet(folder / ARTIFACTS / "metrics" / "ranks.parquet")
        known = {"key": key, **compare(ranks, values["seed"])}
        (folder / FILE).write_text(json.dumps(known, indent=2) + "\n")
    if not known["helped"]:
        values = parameters.merge(values, {"train_embedding": {"phases": []}})
        write_parameters(folder, values)
    return values, known["sentence"]


def compare_small(folder: Path, values: Mapping[str, Any], weights: Path | None) -> str:
    """Return a sentence that compares an evaluated model with the encoder small, as 'bifocal index' searches by it."""
    from bifocal.datasets import read_dataset
    from pipelines.app.encoders import encoder_folder

    ranks = pd.read_parquet(folder / ARTIFACTS / "metrics" / "ranks.parquet")
    key = {"values": values, "metrics": artifact_hash(folder / ARTIFACTS / "metrics")}
    known = json.loads((folder / FILE).read_text()) if (folder / FILE).is_file() else {}
    if known.get("key") != key:
        evaluated = read_dataset(folder / ARTIFACTS / "dataset").split(values["evaluate"]["split"])
        both = pd.concat([ranks, untrained_ranks(encoder_folder(SMALL, weights), evaluated, ranks)])
        known = {"key": key, **compare(both, values["seed"], MODEL)}
        (folder / FILE).write_text(json.dumps(known, indent=2) + "\n")
    return str(known["sentence"])


def untrained_ranks(encoders: Path, dataset: "Dataset", ranks: pd.DataFrame) -> pd.DataFrame:
    """Return the retrieval queries of a rank table with their ranks by exported encoders without training."""
    import torch

    from bifocal.evaluation.rank_tables import with_zero_shot_names
    from bifocal.metrics import retrieval_ranks
    from bifocal.onnx.encoders import Embedder
    from bifocal.promotion.comparison import RETRIEVAL

    embedder, images, captions = Embedder(encoders), dataset.images["image_id"], dataset.captions
    # One by one, as queries are: a batch would change the rounding of the int8 graph.
    texts = np.concatenate([embedder.embed_sentences([text]) for text in captions["text"]])
    vectors = np.concatenate([embedder.embed_images([dataset.image_path(name).read_bytes()]) for name in images])
    owners = torch.from_numpy(pd.Index(images).get_indexer(captions["image_id"]))
    found = retrieval_ranks(torch.from_numpy(vectors), torch.from_numpy(texts), owners)
    tables = []
    for direction, queries, rank in zip(RETRIEVAL, (images, captions["caption_id"]), found, strict=True):
        rank_of = dict(zip(queries.astype(str), rank.expected().tolist(), strict=True))
        table = ranks[ranks["direction"] == direction]
        tables.append(table.assign(rank=table["query"].map(rank_of)))
    return with_zero_shot_names(pd.concat(tables))


def compare(ranks: pd.DataFrame, seed: int, words: tuple[str, str, str] = HEADS) -> Mapping[str, Any]:
    """Return whether a model is better than its encoder without training, and a sentence with the interval.

    It is if the interval of the difference in the recall sum of held-out captions, over resampled images, lies above 0.

    Args:
        words: as ``HEADS``.
    """
    from bifocal.evaluation.rank_tables import ZERO_SHOT
    from bifocal.promotion.checks import RECALL_SUM, measure
    from bifocal.promotion.comparison import RETRIEVAL, join_queries

    below = ranks[ranks["direction"].str.startswith(ZERO_SHOT)]
    if not len(below):
        raise ValueError("the model was not compared with its encoder: keep Baselines in evaluate.evaluators")
    below = below.assign(direction=below["direction"].str.removeprefix(ZERO_SHOT))
    queries = join_queries(ranks[ranks["direction"].isin(RETRIEVAL)], below)
    swapped = {"rank_current": "rank_reference", "rank_reference": "rank_current"}
    measured = measure(queries, RECALL_SUM, KS, (1 - LEVEL) / 2, seed)
    other = measure(queries.rename(columns=swapped), RECALL_SUM, KS, (1 - LEVEL) / 2, seed)
    assert measured is not None  # both directions were ranked
    assert other is not None
    (trained, untrained, low), high = measured, -other[2]
    captions = int((queries["direction"] == RETRIEVAL[1]).sum())
    what, better, otherwise = words
    numbers = (
        f"recall sum {trained:.1f} {what}, {untrained:.1f} without training, difference "
        f"{trained - untrained:+.1f} (95 % interval {low:+.1f} to {high:+.1f}) on {captions} held-out captions of "
        f"{queries['image_id'].nunique()} images"
    )
    helped = low > 0
    kept = better if helped else otherwise
    return {
        "helped": helped,
        "sentence": f"Training {'helped' if helped else 'did not clearly help'}: {numbers}; {kept}.",
    }
