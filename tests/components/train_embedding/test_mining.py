"""Training on mined triplets through the stage train_embedding."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from bifocal.batch import ImageCaptionPairs
from bifocal.datasets import read_dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.models import build_model, load_model
from bifocal.text import TextStore
from bifocal.training.pairs import SemanticPairs
from bifocal.training.validators.semantic import SemanticValidator
from components.train_embedding.run import run
from components.train_embedding.spec import COMPONENT, TrainEmbeddingParams
from runtime import parameters
from tests.components.train_embedding.conftest import Scened

ROOT = Path(__file__).parents[3]
SHORTER: dict[str, Any] = {
    "dim": 16,
    "epochs": 3,
    "batch_size": 16,
    "learning_rate": 0.03,
    "decay_after": [],
    "checkpoint_every": 1000,
    "mining": {"neighbours": 8, "queries": 30, "relevant_each": 3, "hardest": 20, "updates": 8},
}


def validated(recipe: str, **changes: Any) -> TrainEmbeddingParams:
    values = parameters.load(ROOT / "params.yaml", [ROOT / "recipes" / f"{recipe}.yaml"])["train_embedding"]
    section = parameters.merge(values, SHORTER | changes)
    params = parameters.validate({"seed": 0, "train_embedding": section}, [COMPONENT])["train_embedding"]
    assert isinstance(params, TrainEmbeddingParams)
    return params


@pytest.fixture(scope="module")
def artifacts(scened: Scened) -> dict[str, Path]:
    """Scenes whose features are a random map of their words, with much noise in one half."""
    paths = scened(100, 30)
    tables = read_dataset(paths["dataset"])
    texts = TextStore(paths["text"])
    torch.manual_seed(0)
    directions = torch.randn(texts.dim, 16)
    with FeatureWriter(paths["features"], regions=1, dim=32, metadata={}, images_per_file=64) as writer:
        for image_id, own in tables.captions.groupby("image_id"):
            seen = texts.gather(texts.rows(own["caption_id"])).values.sum(dim=0) @ directions
            writer.add(str(image_id), torch.cat([seen, 6 * torch.randn(16)]).unsqueeze(0).numpy())
    return paths


@pytest.mark.parametrize("recipe", ["scenes/semantic", "scenes/semantic_visual"])
def test_mined_triplets_train_and_ndcg_chooses_the_epoch(
    artifacts: dict[str, Path], tmp_path: Path, recipe: str
) -> None:
    figures = run(validated(recipe), **artifacts, embedding=tmp_path)
    history = pd.read_csv(tmp_path / "history.csv")
    best = history["ndcg"].idxmax()
    assert figures == {
        "best_epoch": best + 1,
        "validation_ndcg": pytest.approx(history["ndcg"][best]),
        "validation_recall_sum": pytest.approx(history["recall_sum"][best]),
    }
    features, text = FeatureStore(artifacts["features"]), TextStore(artifacts["text"])
    judge = SemanticValidator(
        SemanticPairs(ImageCaptionPairs(read_dataset(artifacts["dataset"]).split("val"), features, text))
    )
    trained = load_model(tmp_path)
    assert judge(trained)["ndcg"] == pytest.approx(history["ndcg"][best])
    torch.manual_seed(0)
    untrained = build_model(
        {"name": "TwoBranchModel", "dim": 16, "image_encoder": "LinearEncoder", "text_encoder": "BagOfWordsEncoder"},
        feature_dim=features.dim, text_dim=text.dim,
        text_format=text.format.name,
    )  # fmt: skip
    assert history["ndcg"][best] > judge(untrained)["ndcg"] + 5
    # Without the joint losses texts are only read: their map is as it was.
    random = untrained.text_encoder.state_dict()["projection.weight"]
    moved = not torch.equal(trained.text_encoder.state_dict()["projection.weight"], random)
    assert moved == (recipe == "scenes/semantic")


def test_mining_needs_its_loss(artifacts: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="MinedTriplets needs SemanticTripletLoss, not InfoNCELoss"):
        run(validated("scenes/semantic", loss={"name": "InfoNCELoss"}), **artifacts, embedding=tmp_path)
