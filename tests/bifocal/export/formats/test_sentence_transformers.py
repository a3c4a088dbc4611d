"""Exported modules give the sentence vectors of the model: by our own reader, and by
sentence-transformers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from bifocal.export.formats.sentence_transformers import export_sentence_transformer
from bifocal.text.transformer.tiny import write_tiny_transformer
from bifocal.text.vectorizers import SentenceVectors
from bifocal.text.vectorizers.base import load_vectorizer
from tests.bifocal.text_models import CAPTIONS, write_text_model

SENTENCES = [
    "a dog",
    "",
    "Two RED birds on the unknownword",
    "bird " * 60,
    "Ein_Hund rennt, durch!",
]
LORA = {"name": "TransformerEncoder", "train": {"name": "LoRA", "rank": 2}, "pooling": "max_tokens"}
CASES: dict[str, tuple[str, Any]] = {
    "linear": ("SentenceVectors", "LinearEncoder"),
    "no bias": ("SentenceVectors", "BagOfWordsEncoder"),
    "layers": ("SentenceVectors", {"name": "ProjectionEncoder", "hidden": 5}),
    "trained transformer": ("Subwords", LORA),
}


@pytest.fixture(scope="module")
def tiny() -> Path:
    """A transformer with a layer of its own before the norm."""
    folder = write_tiny_transformer(CAPTIONS, dim=8)
    entries = json.loads((folder / "modules.json").read_text())
    entries.insert(2, {"path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "2_Dense").mkdir()
    dense = {
        "in_features": 8,
        "out_features": 7,
        "activation_function": "torch.nn.modules.activation.Tanh",
    }
    (folder / "2_Dense" / "config.json").write_text(json.dumps(dense))
    weights = {"linear.weight": torch.randn(7, 8), "linear.bias": torch.randn(7)}
    save_file(weights, folder / "2_Dense" / "model.safetensors")
    return folder


@pytest.fixture(scope="module", params=CASES)
def exported(
    request: pytest.FixtureRequest, tiny: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Any]:
    """The exported folder of a case, and the sentence vectors of its model."""
    folder = tmp_path_factory.mktemp("model")
    name, encoder = CASES[request.param]
    model = write_text_model(folder, {"name": name, "path": tiny}, encoder)
    export_sentence_transformer(folder / "embedding", folder / "text", folder / "exported")
    with torch.inference_mode():
        vectors = model.embed_captions(
            load_vectorizer(folder / "text").vectorize(SENTENCES)
        ).numpy()
    return folder / "exported", vectors


def test_our_reader_gives_the_vectors_of_the_model(exported: tuple[Path, Any]) -> None:
    folder, vectors = exported
    vectorizer = SentenceVectors(path=folder)
    vectorizer.fit([], seed=0)
    np.testing.assert_allclose(vectorizer.transform(SENTENCES).values, vectors, atol=2e-6)


def test_sentence_transformers_gives_the_vectors_of_the_model(exported: tuple[Path, Any]) -> None:
    library = pytest.importorskip("sentence_transformers")  # CONTRIBUTING.md says how to install it
    folder, vectors = exported
    model = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    np.testing.assert_allclose(model.encode(SENTENCES), vectors, atol=2e-6)
    assert model.similarity_fn_name == "cosine"


def test_other_text_encoders_are_refused(tmp_path: Path) -> None:
    write_text_model(tmp_path, {"name": "TFIDF"}, "LinearEncoder")
    with pytest.raises(
        ValueError,
        match="LinearEncoder over TFIDF cannot be written as modules of sentence-transform",
    ):
        export_sentence_transformer(
            tmp_path / "embedding", tmp_path / "text", tmp_path / "exported"
        )
    assert not (tmp_path / "exported").exists()
