"""Every registered vectorizer keeps the same promises: stored captions equal new sentences, same
seed, same bytes."""

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from bifocal import registry
from bifocal.backbones.open_clip import OpenClipBackbone
from bifocal.onnx.text.captions import DTYPES
from bifocal.text import TextStore
from bifocal.text.vectorizers import FromText
from bifocal.text.vectorizers.base import (
    PACKAGE,
    Vectorizer,
    load_vectorizer,
    vectorizer_digest,
    write_text,
)
from bifocal.training.pretraining.elmo import pretrain_elmo
from tests.bifocal.tiny_transformer import write_tiny_transformer

TRAINING = [
    "A brown dog runs over the green grass.",
    "Two dogs run over grass; one dog is brown.",
    "A man rides a red bicycle down the street.",
    "The man on the bicycle wears a red helmet.",
    "A girl throws a ball to her dog.",
    "Children play with a ball on the grass.",
] * 3
UNUSUAL = ["", "...", "word " * 10_000, "собака бежит по траве", "犬が走る", "🐕", "xyzzy"]
CAPTIONS = [*TRAINING[:6], *UNUSUAL, "a dog on the street"]
VECTORS = "dog 1 2 3\ngrass 2 3 4\nred 0 0 1\na 0 1 0\nunk 1 1 1\n"
TRANSFORMER, CLIP = "a transformer", "a contrastive model"
CLIP_ARGUMENTS = {
    "embed_dim": 12,
    "vision_cfg": {"image_size": 32, "patch_size": 16, "width": 8, "layers": 1, "head_width": 8},
    "text_cfg": {"context_length": 12, "width": 8, "heads": 2, "layers": 1},
}

FISHER = {
    "name": "FisherVectors",
    "dim": 6,
    "centers": 3,
    "components": 10,
    "epochs": 1,
    "iterations": 3,
}
REFS: dict[str, dict[str, Any]] = {
    "skip-gram": {"name": "Word2Vec", "dim": 8, "min_count": 2, "epochs": 2},
    "cbow": {"name": "Word2Vec", "dim": 8, "min_count": 2, "epochs": 2, "algorithm": "cbow"},
    "pretrained": {
        "name": "PretrainedWordVectors",
        "path": VECTORS,
        "unknown": "bucket",
        "buckets": 5,
    },
    "elmo": {
        "name": "ElmoLayers",
        "projection_dim": 4,
        "lstm_dim": 6,
        "filters": ((1, 3), (2, 4)),
        "epochs": 1,
    }
    | {"batch_size": 8},
    "tf-idf": {"name": "TFIDF"},
    "mean": {"name": "MeanWordVectors", "dim": 8, "epochs": 1},
    "mean of pretrained": {"name": "MeanWordVectors", "path": VECTORS},
    "hglmm": FISHER,
    "gmm": FISHER | {"mixture": "gmm"},
    "open_clip": {
        "name": "OpenClipText",
        "path": CLIP,
        "tag": None,
        "model_arguments": CLIP_ARGUMENTS,
    },
    "sentence": {"name": "SentenceVectors", "path": TRANSFORMER, "batch_size": 4},
    "states": {
        "name": "TransformerTokens",
        "path": TRANSFORMER,
        "layers": [0, -1],
        "batch_size": 4,
    },
    "german": {"name": "TFIDF", "language": "german"},
    "sparse and dense": {
        "name": "Concatenated",
        "vectorizers": [{"name": "TFIDF"}, {"name": "MeanWordVectors", "path": VECTORS}],
    },
    "dense": {
        "name": "Concatenated",
        "vectorizers": [
            {"name": "SentenceVectors", "path": TRANSFORMER},
            {"name": "MeanWordVectors", "path": VECTORS},
        ],
    },
}
"""Small instances of every class; ``path`` is the content of the user's file, or
``TRANSFORMER``."""


@cache
def tiny_transformer() -> Path:
    return write_tiny_transformer(TRAINING, dim=8)


def with_user_files(ref: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Write the user's file or folder, and return the reference with its path."""
    if "vectorizers" in ref:
        return ref | {"vectorizers": [with_user_files(part, folder) for part in ref["vectorizers"]]}
    if ref.get("path") == TRANSFORMER:
        shutil.copytree(tiny_transformer(), folder / "user", dirs_exist_ok=True)
        return ref | {"path": str(folder / "user")}
    if ref.get("path") == CLIP:
        torch.manual_seed(0)
        network = OpenClipBackbone("ViT-B-32", None, CLIP_ARGUMENTS).network
        (folder / "user").mkdir(exist_ok=True)
        state = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
        save_file(state, folder / "user" / "clip.safetensors")
        return ref | {"path": str(folder / "user" / "clip.safetensors")}
    if "path" in ref:
        (folder / "user").mkdir(exist_ok=True)
        (folder / "user" / "vectors.vec").write_text(ref["path"])
        return ref | {"path": str(folder / "user" / "vectors.vec")}
    return ref


def fit(name: str, folder: Path, seed: int = 0) -> tuple[Vectorizer, dict[str, float]]:
    vectorizer: Vectorizer = registry.build(
        PACKAGE, with_user_files(REFS[name], folder), train=pretrain_elmo
    )
    return vectorizer, vectorizer.fit(TRAINING, seed)


def write(name: str, folder: Path, seed: int = 0) -> dict[str, float]:
    """Fit on ``TRAINING`` and write ``CAPTIONS`` to ``folder / "text"``."""
    (folder / "text").mkdir(parents=True)
    vectorizer, metrics = fit(name, folder, seed)
    return metrics | write_text(folder / "text", vectorizer, list(range(len(CAPTIONS))), CAPTIONS)


def test_every_registered_vectorizer_is_tested() -> None:
    # FromText is tested with every other vectorizer, see below.
    assert {ref["name"] for ref in REFS.values()} | {"FromText"} == set(
        registry.registered(PACKAGE)
    )


@pytest.mark.parametrize("name", registry.registered(PACKAGE))
def test_vectorizer_builds_from_its_name(name: str) -> None:
    vectorizer = registry.build(PACKAGE, name)
    assert callable(vectorizer.fit)
    assert callable(vectorizer.transform)


@pytest.mark.parametrize("name", REFS)
def test_small_instance_has_no_conflicts(name: str) -> None:
    ref = REFS[name]
    arguments = {key: value for key, value in ref.items() if key != "name"}
    conflicts = getattr(registry.get(PACKAGE, ref["name"]), "conflicts", lambda arguments: [])
    assert list(conflicts(arguments)) == []


@pytest.mark.parametrize("name", REFS)
def test_encoded_captions_have_the_dtype_and_size_of_the_format(name: str, tmp_path: Path) -> None:
    vectorizer, metrics = fit(name, tmp_path)
    encoded, text_format = vectorizer.transform(CAPTIONS), vectorizer.format
    assert len(encoded.values) == len(CAPTIONS)
    assert {row.dtype for row in encoded.values} == {np.dtype(DTYPES[text_format.name])}
    assert (encoded.indices is not None) == (text_format.name == "sparse")
    assert all(isinstance(value, int | float) for value in metrics.values())
    sizes = {"vectors": text_format.dim, "contextual": text_format.layers * text_format.dim}
    assert all(len(row) % sizes.get(text_format.name, 1) == 0 for row in encoded.values)


@pytest.mark.parametrize("name", REFS)
def test_loaded_vectorizer_gives_new_sentences_the_values_of_the_store(
    name: str, tmp_path: Path
) -> None:
    write(name, tmp_path)
    store, vectorizer = TextStore(tmp_path / "text"), load_vectorizer(tmp_path / "text")
    assert vectorizer.vectorizer.format == store.format
    stored, new = store.gather(range(len(CAPTIONS))), vectorizer.vectorize(CAPTIONS)
    assert torch.equal(stored.values, new.values)
    assert torch.equal(stored.lengths, new.lengths)
    assert torch.isfinite(stored.values.float()).all()
    for row, caption in enumerate(CAPTIONS):
        single = vectorizer.vectorize([caption])
        torch.testing.assert_close(store.gather([row]).values, single.values, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("name", REFS)
def test_loaded_vectorizer_needs_no_user_file(name: str, tmp_path: Path) -> None:
    write(name, tmp_path)
    shutil.rmtree(tmp_path / "user", ignore_errors=True)
    assert len(load_vectorizer(tmp_path / "text").vectorize(["a dog"]).values) == 1
    assert str(tmp_path / "user") not in (tmp_path / "text" / "config.json").read_text()


@pytest.mark.parametrize("name", REFS)
def test_same_seed_gives_same_bytes(name: str, tmp_path: Path) -> None:
    files = []
    for folder in ("first", "second"):
        write(name, tmp_path / folder, seed=3)
        text = tmp_path / folder / "text"
        files.append(
            {
                path.relative_to(text): path.read_bytes()
                for path in text.rglob("*")
                if path.is_file()
            }
        )
    assert files[0] == files[1]


@pytest.mark.parametrize("name", REFS)
def test_vectorizer_of_another_text_encodes_as_that_text(name: str, tmp_path: Path) -> None:
    write(name, tmp_path)
    carried = FromText(tmp_path / "text")
    assert carried.fit([], seed=9) == {}
    other = tmp_path / "other"
    other.mkdir()
    write_text(other, carried, [5, 6], CAPTIONS[:2])
    assert vectorizer_digest(other) == vectorizer_digest(tmp_path / "text")
    expected = TextStore(tmp_path / "text").gather([0, 1])
    # Networks round differently in batches of another size.
    torch.testing.assert_close(
        TextStore(other).gather([0, 1]).values, expected.values, atol=1e-5, rtol=1e-3
    )
    new = load_vectorizer(other).vectorize(CAPTIONS[:2]).values
    torch.testing.assert_close(new, expected.values, atol=1e-5, rtol=1e-3)


def test_digest_covers_the_weights_of_a_network(tmp_path: Path) -> None:
    write("sentence", tmp_path)
    text = tmp_path / "text"
    digest = vectorizer_digest(text)
    shutil.copy(
        write_tiny_transformer(TRAINING, dim=8, seed=1) / "model.safetensors", text / "transformer"
    )
    assert vectorizer_digest(text) != digest
    (text / "checkpoints").mkdir()
    (text / "checkpoints" / "state").write_text("of an interrupted fit")
    shutil.copy(tiny_transformer() / "model.safetensors", text / "transformer")
    assert vectorizer_digest(text) == digest


@pytest.mark.parametrize("name", ["skip-gram", "tf-idf"])
def test_digest_changes_with_the_fit_and_not_with_the_captions(name: str, tmp_path: Path) -> None:
    write(name, tmp_path)
    text = tmp_path / "text"
    digest = vectorizer_digest(text)
    (text / "manifest.json").write_text("{}")
    assert vectorizer_digest(text) == digest
    other = tmp_path / "other"
    other.mkdir()
    vectorizer, _ = fit(name, tmp_path)
    vectorizer.fit(TRAINING[:3] * 3, seed=0)
    write_text(other, vectorizer, [0], CAPTIONS[:1])
    assert vectorizer_digest(other) != digest
