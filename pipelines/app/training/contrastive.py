"""``bifocal train --encoder``: heads on a contrastive model, exported only if they are better than the model itself."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from pipelines.app.run_folder import ARTIFACTS, write_parameters
from pipelines.app.stages import run_stages, stages_of_run
from runtime import parameters
from runtime.artifacts import artifact_hash

SMALL = "small"
KS, LEVEL = (1, 5, 10), 0.95
FILE = "zero_shot.json"


def contrastive_sections(encoder: str, weights: Path | None) -> dict[str, Any]:
    """Return the parameters that put a contrastive model in the place of the one in ``recipes/own/clip.yaml``."""
    from bifocal.backbones.open_clip import OpenClipBackbone
    from pipelines.app.indexing.encoders import torch_encoder

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


def compare(ranks: pd.DataFrame, seed: int) -> Mapping[str, Any]:
    """Return whether heads are better than the model below them on held-out captions, and a sentence with the interval.

    They are if the interval of the difference in the recall sum, over resampled images, lies above 0.
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
    numbers = (
        f"recall sum {trained:.1f} with trained heads, {untrained:.1f} without training, difference "
        f"{trained - untrained:+.1f} (95 % interval {low:+.1f} to {high:+.1f}) on {captions} held-out captions of "
        f"{queries['image_id'].nunique()} images"
    )
    helped = low > 0
    kept = "the trained heads are kept" if helped else "the encoder is kept unchanged"
    return {
        "helped": helped,
        "sentence": f"Training {'helped' if helped else 'did not clearly help'}: {numbers}; {kept}.",
    }
