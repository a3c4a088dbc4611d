"""Sentence vectors and states equal the equations of transformers, and problems of a folder are
named."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModel

from bifocal.text.vectorizers import SentenceVectors, TransformerTokens
from tests.bifocal.hub_server import serve_hub
from tests.bifocal.tiny_transformer import write_tiny_transformer

DIM, HEADS = 8, 2
SENTENCES = ["a dog runs on the grass", "A dog", "the unknownword runs", "", "dog " * 100]


@pytest.fixture(scope="module")
def folder() -> Path:
    return write_tiny_transformer(SENTENCES[:1], dim=DIM)


def bert(weights: dict[str, Tensor], ids: list[int]) -> Tensor:
    """Hidden states (T, K) of BERT in float64: Devlin et al., NAACL 2019, on Vaswani et al., NIPS
    2017."""
    w = {name: tensor.double() for name, tensor in weights.items()}

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(name: str, x: Tensor) -> Tensor:
        centered = x - x.mean(dim=1, keepdim=True)
        scaled = centered / (centered.square().mean(dim=1, keepdim=True) + 1e-12).sqrt()
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    embeddings = [
        w[f"embeddings.{kind}_embeddings.weight"] for kind in ("word", "position", "token_type")
    ]
    x = norm(
        "embeddings.LayerNorm", embeddings[0][ids] + embeddings[1][: len(ids)] + embeddings[2][0]
    )
    for layer in range(2):
        place = f"encoder.layer.{layer}"
        q, k, v = (
            linear(f"{place}.attention.self.{kind}", x) for kind in ("query", "key", "value")
        )
        heads = []
        for head in torch.arange(DIM).chunk(HEADS):
            attention = torch.softmax(q[:, head] @ k[:, head].T / math.sqrt(len(head)), dim=1)
            heads.append(attention @ v[:, head])
        attended = linear(f"{place}.attention.output.dense", torch.cat(heads, dim=1))
        x = norm(f"{place}.attention.output.LayerNorm", x + attended)
        inner = linear(f"{place}.intermediate.dense", x)
        inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
        x = norm(f"{place}.output.LayerNorm", x + linear(f"{place}.output.dense", inner))
    return x


def reference(folder: Path, sentence: str, pooling: str = "mean") -> np.ndarray:
    """Vector of a sentence, by loops over its words."""
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    words = [vocabulary.get(word, vocabulary["[UNK]"]) for word in sentence.lower().split()][:22]
    states = bert(load_file(folder / "model.safetensors"), [2, *words, 3])
    pooled = {
        "mean": states.mean(dim=0),
        "cls": states[0],
        "max": states.max(dim=0).values,
        "last": states[-1],
    }
    pooled["sqrt"] = states.sum(dim=0) / math.sqrt(len(states))
    return pooled[pooling].numpy()


def fit(folder: Path) -> SentenceVectors:
    vectorizer = SentenceVectors(path=folder, batch_size=2)
    vectorizer.fit([], seed=0)
    return vectorizer


def test_vectors_are_normalized_means_of_the_last_states(folder: Path) -> None:
    encoded = fit(folder).transform(SENTENCES)
    for sentence, vector in zip(SENTENCES, encoded.values, strict=True):
        expected = reference(folder, sentence)
        np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), atol=2e-6)
    assert encoded.counts == {
        "tokens": 33,
        "unknown_tokens": 1,
        "empty_captions": 1,
        "truncated_captions": 1,
    }


@pytest.mark.parametrize(
    ("config", "poolings"),
    [
        ({"pooling_mode_cls_token": True}, ["cls"]),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, ["max", "mean"]),
        ({"pooling_mode": "lasttoken"}, ["last"]),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, ["sqrt"]),
    ],
)
def test_other_poolings_and_a_dense_layer(
    folder: Path, tmp_path: Path, config: dict[str, object], poolings: list[str]
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "1_Pooling" / "config.json").write_text(json.dumps(config))
    entries = [
        {"path": path, "type": f"s.{kind}"}
        for path, kind in (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"))
    ]
    (copy / "modules.json").write_text(json.dumps(entries))
    weight, bias = torch.randn(3, DIM * len(poolings)), torch.randn(3)
    (copy / "2_Dense").mkdir()
    save_file(
        {"linear.weight": weight, "linear.bias": bias}, copy / "2_Dense" / "model.safetensors"
    )
    dense = {
        "in_features": weight.shape[1],
        "out_features": 3,
        "activation_function": "torch.nn.modules.Tanh",
    }
    (copy / "2_Dense" / "config.json").write_text(json.dumps(dense))
    vectorizer = fit(copy)
    assert vectorizer.format.dim == 3
    for sentence, vector in zip(SENTENCES, vectorizer.transform(SENTENCES).values, strict=True):
        pooled = np.concatenate([reference(folder, sentence, pooling) for pooling in poolings])
        expected = np.tanh(weight.double().numpy() @ pooled + bias.double().numpy())
        np.testing.assert_allclose(vector, expected, atol=1e-5)


def test_a_folder_without_modules_has_the_mean_of_its_tokens(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "modules.json").unlink()
    (vector,) = fit(copy).transform(SENTENCES[:1]).values
    np.testing.assert_allclose(vector, reference(folder, SENTENCES[0]), atol=5e-6)


def test_half_precision_weights_give_float32_vectors(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    weights = {
        name: tensor.half() for name, tensor in load_file(folder / "model.safetensors").items()
    }
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    (vector,) = fit(copy).transform(SENTENCES[:1]).values
    expected = reference(copy, SENTENCES[0])
    assert vector.dtype == np.float32
    np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), atol=2e-6)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_missing_file_is_named(folder: Path, tmp_path: Path, name: str) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / name).unlink()
    with pytest.raises(
        FileNotFoundError, match=r"copy has no .*: expected the folder of a transformer with config"
    ):
        fit(copy)


def test_unknown_module_is_named(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "modules.json").write_text(
        json.dumps([{"path": "3_CNN", "type": "sentence_transformers.models.CNN"}])
    )
    with pytest.raises(
        ValueError,
        match="has a module 'CNN'; supported are Transformer, Pooling, Dense and Normalize",
    ):
        fit(copy)


def test_downloaded_files_are_those_of_a_folder(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "hub" / "a" / "b")
    with serve_hub(tmp_path / "hub") as hub:
        vectorizer = SentenceVectors(model="a/b")
        vectorizer.fit([], seed=0)
        missing = (
            rf"a/c cannot be downloaded .*: {hub.address}/a/c/tree/main has the files. Set "
            r"path to a folder with"
        )
        with pytest.raises(FileNotFoundError, match=missing):
            SentenceVectors(model="a/c").fit([], seed=0)
    np.testing.assert_array_equal(
        vectorizer.transform(SENTENCES[:1]).values[0],
        fit(folder).transform(SENTENCES[:1]).values[0],
    )


WORDS = ["a dog runs", "dog", ""]


@pytest.fixture(scope="module")
def folder_of_words() -> Path:
    return write_tiny_transformer(WORDS, dim=8)


@pytest.mark.parametrize("layers", [(-1,), (0, 1, 2), (2, -3)])
def test_states_are_those_of_the_layers(folder_of_words: Path, layers: tuple[int, ...]) -> None:
    vectorizer = TransformerTokens(layers=layers, batch_size=2, path=folder_of_words)
    vectorizer.fit([], seed=0)
    encoded = vectorizer.transform(WORDS)
    network = AutoModel.from_pretrained(folder_of_words, dtype=torch.float64)
    # The special tokens are 2 and 3; the words follow in alphabetical order.
    for ids, row in zip([[4, 5, 6], [5], []], encoded.values, strict=True):
        with torch.inference_mode():
            states = network(torch.tensor([[2, *ids, 3]]), output_hidden_states=True).hidden_states
        expected = np.stack(
            [states[layer][0, 1 : 1 + max(len(ids), 1)].numpy() for layer in layers]
        )
        assert row.dtype == np.float16
        np.testing.assert_allclose(row, expected.ravel(), atol=2e-3)
    assert encoded.counts["tokens"] == 4


def test_missing_layer_is_named(folder_of_words: Path) -> None:
    with pytest.raises(
        ValueError, match="the transformer has no layer 3: give numbers from -3 to 2"
    ):
        TransformerTokens(layers=(3,), path=folder_of_words).fit([], seed=0)


def test_files_of_a_killed_save_are_replaced(folder_of_words: Path, tmp_path: Path) -> None:
    vectorizer = TransformerTokens(path=folder_of_words)
    vectorizer.fit([], seed=0)
    for _ in range(2):
        vectorizer.save(tmp_path)
    assert list(tmp_path.rglob("*.safetensors"))
