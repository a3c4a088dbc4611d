"""Predicted text and training of a transformer against a text that is written and a model that is built."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from torch.utils.flop_counter import FlopCounterMode

from bifocal import registry
from bifocal.backbones.open_clip import OpenClipBackbone
from bifocal.datasets.published import PublishedCorpus
from bifocal.models import build_model
from bifocal.planning.features import ExpectedFeatures
from bifocal.planning.training import ModelInputs, simulate_embedding, simulate_step
from bifocal.text import TextStore, tokenize
from bifocal.text.transformer.folder import TransformerFolder
from bifocal.text.transformer.tiny import write_tiny_transformer
from bifocal.text.vectorizers.base import PACKAGE, write_text
from bifocal.text.vectorizers.static.pretrained_word_vectors import PUBLISHED_DIM
from bifocal.training.batches.expected import ExpectedBatches

WORDS = [f"word{number}" for number in range(40)]
CAPTIONS = [" ".join(WORDS[start : start + 9]) for start in range(32)] * 8
CORPUS = PublishedCorpus(
    images={"train": 128},
    captions_per_image=2.0,
    words_per_caption=len(tokenize(CAPTIONS[0])),
    words=len(WORDS),
    frequent_words=len(WORDS),
)
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


CLIP = {
    "embed_dim": 12,
    "vision_cfg": {"image_size": 32, "patch_size": 16, "width": 8, "layers": 1, "head_width": 8},
    "text_cfg": {"context_length": 12, "vocab_size": 49408, "width": 8, "heads": 2, "layers": 1},
}


@pytest.fixture(scope="module")
def sources(transformer: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return what a vectorizer may be given as ``path``: a transformer, a folder of model2vec, GloVe, and CLIP."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "model2vec").mkdir()
    shutil.copy(transformer / "tokenizer.json", folder / "model2vec")
    tokens = len(TransformerFolder.read(transformer).tokenizer())
    tensors = {"embeddings": np.ones((tokens // 2, 5), np.float16), "mapping": np.arange(tokens) // 3}
    save_file(tensors, folder / "model2vec" / "model.safetensors")
    line = " ".join(["0.5"] * PUBLISHED_DIM)
    (folder / "glove.txt").write_text("".join(f"{word} {line}\n" for word in WORDS))
    weights = OpenClipBackbone("ViT-B-32", None, CLIP).network.state_dict()
    save_file({name: tensor.numpy() for name, tensor in weights.items()}, folder / "clip.safetensors")
    return {path.stem: path for path in folder.iterdir()} | {"transformer": transformer}


STATIC: dict[str, Any] = {"name": "StaticVectors", "path": "transformer", "dim": 7}
TEXTS: dict[str, dict[str, Any]] = {
    "distilled": STATIC,
    "model2vec": {"name": "StaticVectors", "path": "model2vec"},
    "words": {"name": "StaticVectors", "path": "glove", "weights": "idf"},
    "open_clip": {"name": "OpenClipText", "path": "clip", "tag": None, "model_arguments": CLIP},
    "dense": {"name": "Concatenated", "vectorizers": [{"name": "SentenceVectors", "path": "transformer"}, STATIC]},
    "sparse": {"name": "Concatenated", "vectorizers": [{"name": "TFIDF", "stop_words": False}, STATIC]},
}


@pytest.mark.parametrize("case", TEXTS)
def test_vectors_have_the_predicted_format_and_size(case: str, sources: dict[str, Path], tmp_path: Path) -> None:
    ref = located(TEXTS[case], sources)
    predicted = registry.build(PACKAGE, ref).expect(CORPUS)
    vectorizer = registry.build(PACKAGE, ref)
    vectorizer.fit(CAPTIONS, seed=0)
    write_text(tmp_path, vectorizer, range(len(CAPTIONS)), CAPTIONS)
    assert predicted.format == TextStore(tmp_path).format
    tensors = sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors"))
    # The terms of tf-idf are counted as bytes of text beside their weights.
    assert predicted.fitted_bytes == pytest.approx(tensors, rel=0.35 if case == "sparse" else 0.15)
    stored = (tmp_path / "captions.arrow").stat().st_size
    assert len(CAPTIONS) * predicted.caption_bytes(CORPUS.words_per_caption) == pytest.approx(stored, rel=0.25)
    assert (predicted.flops_per_token > 0) == (case in ("open_clip", "dense"))
    assert (predicted.fit_flops > 0) == (case in ("distilled", "dense", "sparse"))
    assert not predicted.downloads or case == "words"


def located(ref: dict[str, Any], sources: dict[str, Path]) -> dict[str, Any]:
    if "vectorizers" in ref:
        return ref | {"vectorizers": [located(part, sources) for part in ref["vectorizers"]]}
    return ref | {"path": sources[ref["path"]]} if "path" in ref else ref


def test_text_of_missing_files_is_unknown_and_published_towers_are_downloads(tmp_path: Path) -> None:
    missing = {"name": "StaticVectors", "path": str(tmp_path / "missing")}
    assert expected("StaticVectors", tmp_path / "missing") is None
    assert registry.build(PACKAGE, {"name": "Concatenated", "vectorizers": ["TFIDF", missing]}).expect(CORPUS) is None
    clip = registry.build(PACKAGE, {"name": "OpenClipText"}).expect(CORPUS)
    (download,) = clip.downloads
    assert (download.name, clip.format.dim) == ("weights of ViT-B-32", 512)
    # 151 million weights, 63 million of them in the text tower: Radford et al., 2021.
    assert (download.size, clip.fitted_bytes) == (pytest.approx(4 * 151.3e6, rel=0.01), pytest.approx(254e6, rel=0.01))


def test_work_of_a_text_tower_is_that_of_its_matrix_products() -> None:
    predicted = registry.build(PACKAGE, TEXTS["open_clip"] | {"path": "clip"}).expect(CORPUS)
    backbone = OpenClipBackbone("ViT-B-32", None, CLIP)
    with FlopCounterMode(display=False) as counted:
        backbone.embed_sentences([CAPTIONS[0]])
    assert predicted.flops_per_token * CORPUS.words_per_caption == pytest.approx(counted.get_total_flops(), rel=0.2)


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
