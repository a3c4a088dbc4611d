"""Training on mined triplets through the stage train_embedding."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from bifocal.datasets import read_dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.models import build_model, load_model
from bifocal.models.batch import ImageCaptionPairs
from bifocal.text import TextStore
from bifocal.training.semantic_pairs import SemanticPairs
from bifocal.training.validators import Semantic
from components.train_embedding.run import run
from components.train_embedding.spec import COMPONENT, TrainEmbeddingParams
from runtime import parameters
from tests.components.train_embedding.conftest import Scened

ROOT = Path(__file__).parents[3]
PHASE: dict[str, Any] = {
    "batches": {
        "name": "MinedTriplets",
        "batch_size": 16,
        "neighbors": 8,
        "queries_per_pool": 30,
        "positives_per_query": 3,
        "triplets_per_pair": 20,
        "steps_per_epoch": 8,
    },
    "epochs": 3,
    "learning_rate": 0.03,
    "schedule": "Constant",
}


def validated(recipe: str) -> TrainEmbeddingParams:
    values = parameters.load(ROOT / "params.yaml", [ROOT / "recipes" / f"{recipe}.yaml"])[
        "train_embedding"
    ]
    section = parameters.merge(
        values, {"model": {"dim": 16}, "phases": {0: PHASE}, "checkpoint_every_seconds": 1000.0}
    )
    params = parameters.validate({"seed": 0, "train_embedding": section}, [COMPONENT])[
        "train_embedding"
    ]
    assert isinstance(params, TrainEmbeddingParams)
    return params


@pytest.fixture(scope="module")
def artifacts(scened: Scened) -> dict[str, Path]:
    """Scenes whose features are a random projection of their words in one half, and noise in the
    other."""
    paths = scened(100, 30)
    tables = read_dataset(paths["dataset"])
    texts = TextStore(paths["text"])
    torch.manual_seed(0)
    directions = torch.randn(texts.dim, 16)
    with FeatureWriter(
        paths["features"], regions=1, dim=32, metadata={}, images_per_file=64
    ) as writer:
        for image_id, rows in tables.captions.groupby("image_id"):
            content = texts.gather(texts.rows(rows["caption_id"])).values.sum(dim=0) @ directions
            writer.add(
                str(image_id), torch.cat([content, 6 * torch.randn(16)]).unsqueeze(0).numpy()
            )
    return paths


@pytest.mark.parametrize("recipe", ["scenes/semantic", "scenes/semantic_visual"])
def test_mined_triplets_train_and_ndcg_chooses_the_epoch(
    artifacts: dict[str, Path], tmp_path: Path, recipe: str
) -> None:
    metrics = run(validated(recipe), **artifacts, embedding=tmp_path)
    history = pd.read_csv(tmp_path / "history.csv")
    best = history["ndcg"].idxmax()
    assert metrics == {
        "best_epoch": best + 1,
        "validation_ndcg": pytest.approx(history["ndcg"][best]),
    }
    features, text = FeatureStore(artifacts["features"]), TextStore(artifacts["text"])
    validate = Semantic().of_pairs(
        SemanticPairs(
            ImageCaptionPairs(read_dataset(artifacts["dataset"]).split("val"), features, text)
        )
    )
    trained = load_model(tmp_path)
    assert validate(trained)["ndcg"] == pytest.approx(history["ndcg"][best])
    torch.manual_seed(0)
    untrained = build_model(
        {
            "name": "TwoBranchModel",
            "dim": 16,
            "image_encoder": "LinearEncoder",
            "text_encoder": "BagOfWordsEncoder",
        },
        feature_dim=features.dim,
        text_dim=text.dim,
        text_format=text.format.name,
    )
    assert history["ndcg"][best] > validate(untrained)["ndcg"] + 5
    # Without the joint losses the text encoder keeps its random weights.
    random = untrained.text_encoder.state_dict()["projection.weight"]
    moved = not torch.equal(trained.text_encoder.state_dict()["projection.weight"], random)
    assert moved == (recipe == "scenes/semantic")
