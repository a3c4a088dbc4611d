"""Graphs of pretrained networks equal torch; a vector does not depend on the rest of its batch."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import timm
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from safetensors.torch import save_file

from bifocal.backbones.networks import small_networks
from bifocal.export.class_sentences import PACKAGED, small_encoders
from bifocal.export.graphs.pretrained import efficientnet_lite_graph, sentence_graph
from bifocal.export.graphs.quantization import quantize_graph
from bifocal.onnx.encoders import Embedder
from bifocal.onnx.sessions import open_session, run_graph
from bifocal.text.transformer.folder import TransformerFolder
from bifocal.text.transformer.network import SentenceTower
from tests.bifocal.tiny_transformer import write_tiny_transformer

WORDS = ["dog", "snow", "fence", "red", "jacket", "boat", "lake", "runs"]


@pytest.mark.parametrize("name", ["tf_efficientnet_lite0", "tf_efficientnet_lite2"])
def test_logits_of_cells_equal_torch(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = timm.create_model(name).eval()
    for module in network.modules():  # statistics of a trained network
        if isinstance(module, torch.nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    onnx.save(
        efficientnet_lite_graph(load_file(tmp_path / "weights.safetensors")), tmp_path / "g.onnx"
    )
    session = open_session(tmp_path / "g.onnx")
    for batch, (height, width) in enumerate([(64, 96), (160, 128)], start=1):
        pixels = torch.randint(0, 256, (batch, 3, height, width), dtype=torch.uint8)
        with torch.inference_mode():
            maps = network.forward_features((pixels.float() - 127.5) / 127.5)
            expected = network.classifier(maps.movedim(1, 3)).numpy()
        (found,) = run_graph(session, (pixels.numpy(),))
        np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> TransformerFolder:
    return TransformerFolder.read(
        write_tiny_transformer(WORDS, folder=tmp_path_factory.mktemp("encoder"))
    )


@pytest.fixture(scope="module")
def session(encoder: TransformerFolder, tmp_path_factory: pytest.TempPathFactory) -> Any:
    file, graph = tmp_path_factory.mktemp("graph") / "graph.onnx", sentence_graph(encoder)
    assert graph is not None
    onnx.save(graph, file)
    return open_session(file)


@given(sentences=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9), min_size=1))
def test_sentences_equal_torch(
    encoder: TransformerFolder, session: Any, sentences: list[list[str]]
) -> None:
    texts, tokenizer = [" ".join(words) for words in sentences], encoder.tokenizer()
    expected = SentenceTower.load(encoder).embed(tokenizer.encode(texts)[0]).numpy()
    assert run_graph(session, tokenizer.batch(texts))[0] == pytest.approx(expected, abs=1e-5)


def test_other_encoders_have_no_graph(encoder: TransformerFolder) -> None:
    from dataclasses import replace

    assert sentence_graph(replace(encoder, poolings=("cls_token",))) is None


@pytest.fixture(scope="module")
def small(graph_cache: Path) -> Embedder:
    """The encoders small of the packages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(graph_cache))
        return Embedder(small_encoders(small_networks(offline=True)))


@given(company=st.lists(st.lists(st.sampled_from(WORDS), max_size=40), max_size=4))
def test_the_vector_of_a_sentence_does_not_depend_on_its_company(
    small: Embedder, company: list[list[str]]
) -> None:
    text = "The dogs are in the snow in front of a fence ."
    (alone,) = small.embed_sentences([text])
    beside = small.embed_sentences([*(" ".join(words) for words in company), text])
    assert beside[-1] == pytest.approx(alone, abs=1e-5)


def test_an_image_has_the_same_vector_alone_and_in_a_batch(small: Embedder) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 3, 320, 320), dtype=np.uint8)
    together = small.embed_pixels(list(images))
    for image, vector in zip(images, together, strict=True):
        assert small.embed_pixels([image])[0] == pytest.approx(vector, abs=1e-5)


def test_the_packaged_class_vectors_are_those_of_the_packaged_encoder(small: Embedder) -> None:
    from bifocal.backbones.classes import imagenet_classes

    sentences, classes = small_networks(offline=True).sentences, imagenet_classes()
    assert sentences is not None
    with np.load(sentences / PACKAGED, allow_pickle=False) as stored:
        definitions, synonyms = stored["definitions"], stored["synonyms"]
    assert small.embed_sentences(classes.definitions[::97]) == pytest.approx(
        definitions[::97].astype(np.float32), abs=1e-3
    )
    assert small.embed_sentences(list(classes.names[0])) == pytest.approx(
        synonyms[:2].astype(np.float32), abs=1e-3
    )


def test_trained_text_encoders_of_int8_keep_the_vector_too(
    encoder: TransformerFolder, tmp_path: Path
) -> None:
    graph = sentence_graph(encoder)
    assert graph is not None
    onnx.save(graph, tmp_path / "graph.onnx")
    quantize_graph(tmp_path / "graph.onnx")
    session, tokenizer = open_session(tmp_path / "graph.onnx"), encoder.tokenizer()
    together = run_graph(session, tokenizer.batch(["dog runs", "red jacket snow fence", "lake"]))[0]
    for text, vector in zip(["dog runs", "red jacket snow fence", "lake"], together, strict=True):
        assert run_graph(session, tokenizer.batch([text]))[0][0] == pytest.approx(vector, abs=1e-5)
