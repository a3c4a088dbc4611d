"""Published files about words: the formats of word2vec, skip-thoughts, ELMo and WordNet."""

import json
from collections.abc import Iterable
from pathlib import Path

import h5py
import numpy as np
import torch

from bifocal.onnx.text.captions import tokenize
from bifocal.text.elmo import Elmo, ElmoOptions
from bifocal.text.skip_thoughts import convert_skip_thoughts

OTHERS = ("</s>", "New_York", "Gordo", "##")
"""Words of the file that no caption has."""
LICENSE = (
    "  1 This software and database is being provided to you, the LICENSEE, by Princeton University"
)


def write_word2vec(captions: Iterable[str], path: Path, dim: int = 300) -> None:
    """Write a random vector for each word of the captions, and for a few others, as Google
    publishes its vectors."""
    path.parent.mkdir(parents=True, exist_ok=True)
    words = [*OTHERS, *sorted({token for caption in captions for token in tokenize(caption)})]
    vectors = np.random.default_rng(0).standard_normal((len(words), dim)).astype("<f4")
    with path.open("wb") as file:
        file.write(f"{len(words)} {dim}\n".encode())
        for word, vector in zip(words, vectors, strict=True):
            file.write(word.encode() + b" " + vector.tobytes())


def write_skip_thoughts(captions: Iterable[str], root: Path, dim: int = 64) -> None:
    """Write ``utable.npy``, a pickled object array, and ``dictionary.txt``, and convert them as a
    user does."""
    root.mkdir(parents=True, exist_ok=True)
    words = [
        "<eos>",
        "UNK",
        *sorted({token for caption in captions for token in tokenize(caption)}),
    ]
    table = np.empty(len(words), object)
    table[:] = list(np.random.default_rng(0).standard_normal((len(words), dim)).astype("<f4"))
    np.save(root / "utable.npy", table, allow_pickle=True)
    (root / "dictionary.txt").write_text("".join(f"{word}\n" for word in words))
    convert_skip_thoughts(root / "utable.npy", root / "dictionary.txt", root / "words.npy")


def write_wordnet(captions: Iterable[str], root: Path) -> None:
    """Write ``index.noun`` and ``noun.exc``: the words of the captions, words in -s and -es as
    plurals."""
    root.mkdir(parents=True, exist_ok=True)
    words = {token for caption in captions for token in tokenize(caption)}
    nouns = {
        word
        for word in words
        if not any(word.removesuffix(end) in words - {word} for end in ("s", "es"))
    }
    lines = [f"{noun} n 1 0 1 1 00001740" for noun in sorted(nouns)]
    (root / "index.noun").write_text("\n".join([LICENSE, *lines]) + "\n")
    (root / "noun.exc").write_text("men man\nleaves leaf\n")


def write_elmo(captions: Iterable[str], root: Path) -> None:
    """Write ``options.json`` and the HDF5 weights of a small network with random weights.

    Its vectors of the captions' words have mean 0 and variance 1: otherwise all words of random
    weights are similar.
    """
    root.mkdir(parents=True, exist_ok=True)
    options = ElmoOptions(
        symbol_dim=8,
        filters=((1, 16), (2, 16), (3, 32), (4, 32)),
        lstm_dim=64,
        projection_dim=32,
        layers=2,
    )
    (root / "options.json").write_text(
        json.dumps(
            {
                "lstm": {
                    "dim": options.lstm_dim,
                    "projection_dim": options.projection_dim,
                    "n_layers": options.layers,
                    "cell_clip": options.cell_clip,
                    "proj_clip": options.projection_clip,
                    "use_skip_connections": options.skip_connections,
                },
                "char_cnn": {
                    "embedding": {"dim": options.symbol_dim},
                    "filters": options.filters,
                    "n_highway": options.highways,
                    "n_characters": 262,
                    "max_characters_per_token": options.max_symbols,
                    "activation": options.activation,
                },
            }
        )
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        elmo = Elmo(options)
    words = sorted({token for caption in captions for token in tokenize(caption)})
    vectors = np.concatenate([layers[0] for layers in elmo.layers([[word] for word in words], 64)])
    vectors = vectors[:, : options.projection_dim].astype(np.float32)
    state = {name: value.numpy() for name, value in elmo.state_dict().items()}
    state["tokens.projection.weight"] /= vectors.std(axis=0)[:, None]
    state["tokens.projection.bias"] -= vectors.mean(axis=0)
    state["tokens.projection.bias"] /= vectors.std(axis=0)
    with h5py.File(root / "elmo_2x64_32_weights.hdf5", "w") as file:
        file["char_embed"] = state["tokens.embedding.weight"]
        for index in range(len(options.filters)):
            file[f"CNN/W_cnn_{index}"] = state[f"tokens.convolutions.{index}.weight"].transpose(
                2, 1, 0
            )[None]
            file[f"CNN/b_cnn_{index}"] = state[f"tokens.convolutions.{index}.bias"]
        for index in range(options.highways):
            for name, key in (("transforms", "transform"), ("carries", "carry")):
                file[f"CNN_high_{index}/W_{key}"] = state[f"tokens.{name}.{index}.weight"].T
                file[f"CNN_high_{index}/b_{key}"] = state[f"tokens.{name}.{index}.bias"]
        file["CNN_proj/W_proj"] = state["tokens.projection.weight"].T
        file["CNN_proj/b_proj"] = state["tokens.projection.bias"]
        for number, direction in enumerate(("forwards", "backwards")):
            for index in range(options.layers):
                cell = f"RNN_{number}/RNN/MultiRNNCell/Cell{index}/LSTMCell"
                name = f"{direction}.{index}"
                both = np.concatenate(
                    [state[f"{name}.from_input"], state[f"{name}.from_output"]], axis=1
                )
                bias = state[f"{name}.bias"].copy()
                # The network's bias has the 1 that the published code adds to the forget gates.
                bias[2 * options.lstm_dim : 3 * options.lstm_dim] -= 1.0
                file[f"{cell}/W_0"], file[f"{cell}/B"] = both.T, bias
                file[f"{cell}/W_P_0"] = state[f"{name}.projection"].T
