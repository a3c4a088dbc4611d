"""``bifocal export`` writes a model for other tools, or says in one sentence why it cannot."""

from pathlib import Path

import torch

from bifocal.search.trained_model import TrainedModel
from bifocal.text.transformer.tiny import write_tiny_transformer
from bifocal.text.vectorizers import SentenceVectors
from bifocal.text.vectorizers.base import load_vectorizer
from tests.bifocal.text_models import CAPTIONS, write_text_model
from tests.pipelines.app.conftest import Command


def test_a_text_encoder_is_exported_for_sentence_transformers(
    command: Command, tmp_path: Path
) -> None:
    artifacts = tmp_path / "run" / "artifacts"
    artifacts.mkdir(parents=True)
    (tmp_path / "run" / "params.yaml").write_text("seed: 0\n")
    vectors = {"name": "SentenceVectors", "path": write_tiny_transformer(CAPTIONS, dim=8)}
    model = write_text_model(artifacts, vectors, "LinearEncoder")
    result = command(
        "export", tmp_path / "model", "--run", tmp_path / "run", "--format", "sentence-transformers"
    )
    assert result.exit_code == 0, result.output
    assert "3_Dense/model.safetensors" in result.output
    exported = SentenceVectors(path=tmp_path / "model")
    exported.fit([], seed=0)
    with torch.inference_mode():
        expected = model.embed_captions(load_vectorizer(artifacts / "text").vectorize(CAPTIONS))
    torch.testing.assert_close(
        torch.stack(list(map(torch.from_numpy, exported.transform(CAPTIONS).values))), expected
    )


def test_other_models_are_refused_in_one_sentence(
    command: Command, demo: TrainedModel, tmp_path: Path
) -> None:
    artifacts = tmp_path / "run" / "artifacts"
    artifacts.mkdir(parents=True)
    (tmp_path / "run" / "params.yaml").write_text("seed: 0\n")
    write_text_model(artifacts, {"name": "TFIDF"}, "BagOfWordsEncoder")
    cases = {
        (
            tmp_path / "run",
            "sentence-transformers",
        ): "BagOfWordsEncoder over TFIDF cannot be written as modules of sent",
        (
            demo.directory,
            "sentence-transformers",
        ): f"{demo.directory} has no trained text encoder: see 'bifocal train'",
        (
            demo.directory,
            "immich",
        ): "the layout of Immich has one tokenizer, with a token for padding: train with the",
    }
    for (run, name), message in cases.items():
        result = command("export", tmp_path / "model", "--run", run, "--format", name)
        assert message in str(result.exception)
        assert not (tmp_path / "model").exists()
