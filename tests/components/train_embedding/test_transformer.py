"""The stage train_embedding with a text encoder that contains a transformer."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bifocal.datasets import read_dataset
from bifocal.features import FeatureWriter
from bifocal.models import load_model
from bifocal.text.transformer.network import Transformer
from bifocal.text.transformer.tiny import write_tiny_transformer
from bifocal.text.vectorizers import Subwords
from bifocal.text.vectorizers.base import write_text
from bifocal.training.checkpoints import checkpoint_hook
from components.train_embedding.run import run
from components.train_embedding.spec import TrainEmbeddingParams
from tests.components.train_embedding.conftest import Scened
from tests.components.train_embedding.section import validated

PHASE = {
    "batches": {"name": "DistinctImageBatches", "batch_size": 8},
    "epochs": 3,
    "learning_rate_factors": {"text_encoder.transformer": 0.2},
}


@pytest.fixture(scope="module")
def artifacts(scened: Scened) -> dict[str, Path]:
    """Scenes with features that hold which words their captions have, and captions as subwords."""
    paths = scened(32, 8)
    captions = read_dataset(paths["dataset"]).captions
    sentences = list(captions["text"])
    words = sorted({word for text in sentences for word in text.split()})
    random = np.random.default_rng(0)
    directions = {word: random.normal(size=12) for word in words}
    with FeatureWriter(
        paths["features"], regions=1, dim=12, metadata={}, images_per_file=64
    ) as writer:
        for image_id, own in captions.groupby("image_id"):
            seen = sum(directions[word] for word in set(" ".join(own["text"]).split()))
            writer.add(str(image_id), np.asarray(seen, dtype=np.float32)[None])
    vectorizer = Subwords(path=write_tiny_transformer(sentences, dim=8))
    vectorizer.fit([], seed=0)
    paths["text"] = paths["text"].with_name("subwords")
    paths["text"].mkdir()
    write_text(paths["text"], vectorizer, captions["caption_id"], sentences)
    return paths


def params(train: Any) -> TrainEmbeddingParams:
    encoders = {
        "image_encoder": "LinearEncoder",
        "text_encoder": {"name": "TransformerEncoder", "train": train},
    }
    return validated(
        PHASE, model={"name": "TwoBranchModel", "dim": 8, **encoders}, checkpoint_every_seconds=0.0
    )


@pytest.mark.parametrize("train", ["AllLayers", {"name": "LoRA", "rank": 2}], ids=["all", "lora"])
def test_killed_training_resumes_bit_for_bit(
    artifacts: dict[str, Path], tmp_path: Path, train: Any
) -> None:
    whole, killed, checkpoints = tmp_path / "whole", tmp_path / "killed", iter(range(6))
    run(params(train), **artifacts, embedding=whole)
    history = pd.read_csv(whole / "history.csv")
    assert history["loss"].iloc[-1] < history["loss"].iloc[0]

    def kill(*, is_last: bool) -> None:
        if next(checkpoints, None) is None:
            raise KeyboardInterrupt

    with checkpoint_hook(kill), pytest.raises(KeyboardInterrupt):
        run(params(train), **artifacts, embedding=killed)
    run(params(train), **artifacts, embedding=killed)
    pd.testing.assert_frame_equal(pd.read_csv(killed / "history.csv"), history, check_exact=True)
    expected, resumed = (load_model(folder).state_dict() for folder in (whole, killed))
    assert all(tensor.equal(resumed[name]) for name, tensor in expected.items())


def test_weights_that_do_not_train_are_the_published_ones(
    artifacts: dict[str, Path], tmp_path: Path
) -> None:
    run(params({"name": "LastLayers", "layers": 1}), **artifacts, embedding=tmp_path)
    trained = load_model(tmp_path).text_encoder.get_submodule("transformer").state_dict()
    published = Transformer.load(artifacts["text"] / "transformer").state_dict()
    changed = {name for name, tensor in published.items() if not tensor.equal(trained[name])}
    assert changed == {name for name in published if "encoder.layer.1." in name}
