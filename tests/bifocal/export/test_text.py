"""A text encoder behind a transformer is one graph: raw sentences without torch give the embeddings
of torch."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from bifocal import registry
from bifocal.backbones.open_clip import OpenClipBackbone
from bifocal.export.text import (
    compare_text_encoder,
    export_sentences,
    export_text_encoder,
    has_network,
)
from bifocal.models import build_model, save_model
from bifocal.onnx.sessions import open_session, run_graph
from bifocal.onnx.text.sentences import SentenceReader
from bifocal.text import TextStore
from bifocal.text.transformer.folder import TransformerFolder
from bifocal.text.vectorizers.base import PACKAGE, load_vectorizer, write_text
from tests.bifocal.contrastive import write_multilingual
from tests.bifocal.tiny_transformer import write_tiny_transformer

DEMO = Path(__file__).parents[3] / "pipelines" / "app" / "demo_model" / "onnx"
CAPTIONS = ["a dog runs on the grass", "two red birds", "the dog", "a bird on a street", "grass"]
SENTENCES = [
    "a dog",
    "",
    "Two RED birds on the unknownword",
    "bird " * 60,
    "Ein_Hund rennt,  durch den Schnee!",
    "犬が走る",
]
MIXTURE = {"name": "TokenMixtureEncoder", "layers": 2}
CLIP = {
    "embed_dim": 12,
    "vision_cfg": {"image_size": 32, "patch_size": 16, "width": 8, "layers": 1, "head_width": 8},
    "text_cfg": {"context_length": 12, "width": 8, "heads": 2, "layers": 2},
}
SLOW = ("states", "clip", "sentences")
CASES = (
    *("multilingual", "vectors"),
    *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW),
)
ABSENT = ("torch", "transformers", "open_clip", "sklearn", "scipy")
"""Packages that a server need not have."""


@pytest.fixture(scope="module")
def tiny() -> Path:
    return write_tiny_transformer(CAPTIONS, dim=8)


def vectorizer_and_encoder(case: str, tiny: Path) -> tuple[dict[str, Any], Any]:
    """Return the vectorizer and the text encoder of a case."""
    vectors = [
        {"name": "TFIDF"},
        {"name": "SentenceVectors", "path": tiny},
        {
            "name": "FisherVectors",
            "dim": 4,
            "centers": 2,
            "components": 3,
            "epochs": 1,
            "iterations": 2,
        },
    ]
    cases: dict[str, tuple[dict[str, Any], Any]] = {
        "states": ({"name": "TransformerTokens", "path": tiny, "layers": [1, -1]}, MIXTURE),
        "clip": (
            {"name": "OpenClipText", "path": "clip", "tag": None, "model_arguments": CLIP},
            "ResidualHead",
        ),
        "multilingual": ({"name": "OpenClipText", "tag": None}, "ResidualHead"),
        "sentences": (vectors[1], "LinearEncoder"),
        "vectors": ({"name": "Concatenated", "vectorizers": vectors}, "LinearEncoder"),
    }
    return cases[case]


@pytest.mark.parametrize("case", CASES)
def test_raw_sentences_without_torch_equal_torch(
    case: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, encoder = vectorizer_and_encoder(case, tiny)
    if case == "clip":
        torch.manual_seed(0)
        state = OpenClipBackbone("ViT-B-32", None, CLIP).network.state_dict()
        ref = ref | {"path": tmp_path / "clip.safetensors"}
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, ref["path"])
    if case == "multilingual":
        source = write_multilingual(tmp_path / "multilingual")
        ref = ref | {"model": f"local-dir:{source}", "path": source / "open_clip_model.safetensors"}
    vectorizer = registry.build(PACKAGE, ref)
    vectorizer.fit(CAPTIONS, seed=0)
    text, embedding, onnx = (tmp_path / name for name in ("text", "embedding", "onnx"))
    for folder in (text, onnx):
        folder.mkdir()
    write_text(text, vectorizer, range(len(CAPTIONS)), CAPTIONS)
    if case == "multilingual":
        shutil.rmtree(source)  # a run may be moved to a machine without the folder
    store, fitted = TextStore(text), load_vectorizer(text)
    torch.manual_seed(0)
    parts = {"image_encoder": "LinearEncoder", "text_encoder": encoder}
    model = build_model(
        {"name": "TwoBranchModel", "dim": 12 if case in ("clip", "multilingual") else 6, **parts},
        feature_dim=3,
        text_dim=store.dim,
        text_format=store.format.name,
    ).eval()
    for weight in model.text_encoder.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    save_model(embedding, model)

    file = onnx / "text_encoder.onnx"
    assert has_network(text)
    export_text_encoder(embedding, text, file)
    parities = list(compare_text_encoder(embedding, text, file, seed=0))
    assert len({(parity.batch, parity.length) for parity in parities}) == 9
    assert max(parity.difference for parity in parities) < 1e-5

    shutil.copytree(
        text,
        onnx / "text",
        ignore=shutil.ignore_patterns("captions.arrow", "transformer", "text_tower"),
    )
    with monkeypatch.context() as patch:
        for name in ABSENT:
            patch.setitem(sys.modules, name, None)
        (served,) = run_graph(open_session(file), SentenceReader(onnx).read(SENTENCES))
    with torch.inference_mode():
        expected = model.embed_captions(fitted.vectorize(SENTENCES)).numpy()
    np.testing.assert_allclose(served, expected, atol=1e-5)


@pytest.mark.slow
def test_a_sentence_encoder_is_exported_once_with_each_pooling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = write_tiny_transformer(CAPTIONS, dim=8, folder=tmp_path / "tiny")
    encoder = TransformerFolder.read(folder)
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    for each in (first, second, third):
        each.mkdir()
    graph = export_sentences(encoder, first)
    encoder.copy(tmp_path / "copy")
    with monkeypatch.context() as patch:
        patch.setattr("bifocal.export.text.run_in_fresh_process", None)  # an export would call it
        again = export_sentences(TransformerFolder.read(tmp_path / "copy"), second)
    assert again.read_bytes() == graph.read_bytes()
    other = export_sentences(replace(encoder, poolings=("max_tokens",)), third)
    ids, lengths = np.array([[2, 4, 5, 3]]), np.array([4])
    (mean,), (largest,) = (run_graph(open_session(file), (ids, lengths)) for file in (graph, other))
    assert np.abs(mean - largest).max() > 0.1
