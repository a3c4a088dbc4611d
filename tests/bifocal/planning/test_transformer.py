"""Predicted text and training of a transformer against a text that is written and a model that is built."""

from pathlib import Path
from typing import Any

import pytest

from bifocal import registry
from bifocal.datasets.published import PublishedCorpus
from bifocal.models import build_model
from bifocal.planning.features import ExpectedFeatures
from bifocal.planning.training import ModelInputs, simulate_embedding, simulate_step
from bifocal.text import TextStore, tokenize
from bifocal.text.transformer.tiny import write_tiny_transformer
from bifocal.text.vectorizers.base import PACKAGE, write_text
from bifocal.training.batches.expected import ExpectedBatches

WORDS = [f"word{number}" for number in range(40)]
CAPTIONS = [" ".join(WORDS[start : start + 9]) for start in range(32)] * 8
CORPUS = PublishedCorpus(images={"train": 128}, captions_per_image=2.0, words_per_caption=len(tokenize(CAPTIONS[0])))
FEATURES = ExpectedFeatures(1, 12)


@pytest.fixture(scope="module")
def transformer() -> Path:
    return write_tiny_transformer(CAPTIONS, dim=16)


def expected(name: str, path: Path) -> Any:
    return registry.build(PACKAGE, {"name": name, "path": str(path)}).expect(CORPUS)


@pytest.mark.parametrize("name", ["SentenceVectors", "TransformerTokens", "Subwords"])
def test_text_has_the_predicted_format_and_size(name: str, transformer: Path, tmp_path: Path) -> None:
    vectorizer = registry.build(PACKAGE, {"name": name, "path": transformer})
    vectorizer.fit([], seed=0)
    write_text(tmp_path, vectorizer, range(len(CAPTIONS)), CAPTIONS)
    text, predicted = TextStore(tmp_path), expected(name, transformer)
    assert predicted.format == text.format
    assert predicted.network == text.network
    assert predicted.fitted_bytes == (tmp_path / "transformer" / "model.safetensors").stat().st_size
    stored = (tmp_path / "captions.arrow").stat().st_size
    # Each of these words is one token; of published captions, one word in eight is two.
    assert len(CAPTIONS) * predicted.caption_bytes(CORPUS.words_per_caption) == pytest.approx(stored, rel=0.2)
    assert expected(name, tmp_path / "missing") is None


def test_frozen_weights_need_no_state_of_the_optimizer(transformer: Path) -> None:
    text, state = expected("Subwords", transformer), {}
    for train in ("AllLayers", "LoRA"):
        encoders = {"image_encoder": "LinearEncoder", "text_encoder": {"name": "TransformerEncoder", "train": train}}
        reference = {"name": "TwoBranchModel", "dim": 8, **encoders}
        inputs = ModelInputs.of(reference, FEATURES, text, CORPUS)
        assert inputs.words == 12
        model = build_model(reference, feature_dim=12, text_dim=16, text_format="subwords", network=text.network)
        assert simulate_embedding(inputs, 4).weights == sum(value.nbytes for value in model.state_dict().values())
        batches = ExpectedBatches(images=8, captions=8, steps=1)
        options: dict[str, Any] = {"loss": "InfoNCELoss", "optimizer": "Adam", "precision": "float32"}
        step = simulate_step(inputs, batches, frozen_until={}, epoch=0, **options)
        state[train] = step.state
        # All weights, two moments of Adam for each that trains, and the count of steps of each tensor.
        moments = sum(2 * weight.numel() + 1 for weight in model.parameters())
        weights = sum(value.nbytes for value in model.state_dict().values())
        assert step.state == pytest.approx(weights + 4 * moments, rel=0.02)
        assert step.work.flops > 2 * 8 * inputs.words * 2 * 16 * 16
    assert state["LoRA"] < 0.6 * state["AllLayers"]
