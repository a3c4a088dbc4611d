"""ELMo against a slow reference in float64: one sentence, direction and token at a time, read from
the HDF5 file."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from bifocal.text import Elmo

PUBLISHED = Path(__file__).parents[5] / "shared" / "data" / "elmo"
SENTENCES = [
    ["The", "U.S.", "Centers", "für", "Krankheit"],
    ["a"],
    ["A", "dog", "runs", "pneumono" * 10, "犬", "."],
    [],
]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def token_vector(file: Any, options: Any, token: str | int) -> np.ndarray:
    letters = options["char_cnn"]
    longest = letters["max_characters_per_token"]
    symbols = [
        258,
        *([token] if isinstance(token, int) else list(token.encode()[: longest - 2])),
        259,
    ]
    symbols += [260] * (longest - len(symbols))
    embedded = [file["char_embed"][symbol].astype(np.float64) for symbol in symbols]
    maxima: list[float] = []
    for index, (width, count) in enumerate(letters["filters"]):
        weight, bias = (
            file[f"CNN/W_cnn_{index}"][0].astype(np.float64),
            file[f"CNN/b_cnn_{index}"][...],
        )
        outputs = [
            sum(embedded[start + offset] @ weight[offset] for offset in range(width)) + bias
            for start in range(longest - width + 1)
        ]
        assert len(bias) == count
        maxima += np.maximum(np.max(outputs, axis=0), 0).tolist()
    x = np.array(maxima)
    for index in range(letters["n_highway"]):
        high = file[f"CNN_high_{index}"]
        gate = sigmoid(x @ high["W_carry"][...] + high["b_carry"][...])
        x = (
            gate * np.maximum(x @ high["W_transform"][...] + high["b_transform"][...], 0)
            + (1 - gate) * x
        )
    return x @ file["CNN_proj/W_proj"][...] + file["CNN_proj/b_proj"][...]


def lstm(cell: Any, options: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
    dim, clip, projection_clip = (
        options["lstm"]["dim"],
        options["lstm"]["cell_clip"],
        options["lstm"]["proj_clip"],
    )
    weight, bias, projection = (
        cell[name][...].astype(np.float64) for name in ("W_0", "B", "W_P_0")
    )
    state, output, outputs = np.zeros(dim), np.zeros(projection.shape[1]), []
    for x in inputs:
        i, j, f, o = np.split(np.concatenate([x, output]) @ weight + bias, 4)
        state = np.clip(sigmoid(f + 1) * state + sigmoid(i) * np.tanh(j), -clip, clip)
        output = np.clip(
            (sigmoid(o) * np.tanh(state)) @ projection, -projection_clip, projection_clip
        )
        outputs.append(output)
    return outputs


def reference(folder: Path, sentence: list[str]) -> np.ndarray:
    options = json.loads((folder / "options.json").read_text())
    with h5py.File(folder / "lm_weights.hdf5") as file:
        tokens = [token_vector(file, options, token) for token in (256, *sentence, 257)]
        halves = []
        for direction in range(2):
            inputs = tokens[::-1] if direction else tokens
            layers = [inputs]
            for index in range(options["lstm"]["n_layers"]):
                outputs = lstm(
                    file[f"RNN_{direction}/RNN/MultiRNNCell/Cell{index}/LSTMCell"], options, inputs
                )
                inputs = [a + b for a, b in zip(outputs, inputs, strict=True)] if index else outputs
                layers.append(inputs)
            halves.append([layer[::-1] if direction else layer for layer in layers])
    both = np.concatenate([np.array(half) for half in halves], axis=2)
    return both[:, 1:-1]


def write_random(folder: Path, scale: float = 0.4) -> Path:
    """Write a small network of random weights in the published format, with values large enough to
    be clipped."""
    generator = np.random.default_rng(0)
    filters, width, dim, projection = [[1, 3], [2, 4], [3, 5]], 12, 6, 4
    options = {
        "lstm": {
            "cell_clip": 0.2,
            "use_skip_connections": True,
            "n_layers": 2,
            "proj_clip": 0.1,
            "projection_dim": projection,
            "dim": dim,
        },
        "char_cnn": {
            "embedding": {"dim": 4},
            "filters": filters,
            "n_highway": 2,
            "n_characters": 262,
            "max_characters_per_token": 12,
            "activation": "relu",
        },
    }
    shapes: dict[str, tuple[int, ...]] = {"char_embed": (261, 4)}
    for index, (size, count) in enumerate(filters):
        shapes |= {f"CNN/W_cnn_{index}": (1, size, 4, count), f"CNN/b_cnn_{index}": (count,)}
    for index in range(2):
        for name in ("carry", "transform"):
            shapes |= {
                f"CNN_high_{index}/W_{name}": (width, width),
                f"CNN_high_{index}/b_{name}": (width,),
            }
    shapes |= {"CNN_proj/W_proj": (width, projection), "CNN_proj/b_proj": (projection,)}
    for direction in range(2):
        for index in range(2):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{index}/LSTMCell"
            shapes |= {f"{cell}/W_0": (2 * projection, 4 * dim), f"{cell}/B": (4 * dim,)}
            shapes |= {f"{cell}/W_P_0": (dim, projection)}
    folder.mkdir(exist_ok=True)
    (folder / "options.json").write_text(json.dumps(options))
    with h5py.File(folder / "lm_weights.hdf5", "w") as file:
        for name, shape in shapes.items():
            file[name] = scale * generator.normal(size=shape).astype(np.float32)
    return folder


def load(folder: Path) -> Elmo:
    return Elmo.load(folder / "options.json", folder / "lm_weights.hdf5")


@pytest.mark.parametrize("published", [False, True])
def test_layers_equal_the_reference(tmp_path: Path, published: bool) -> None:
    if published and not PUBLISHED.is_dir():
        pytest.skip(f"{PUBLISHED} is not available")
    folder = PUBLISHED if published else write_random(tmp_path / "elmo")
    for sentence, layers in zip(SENTENCES, load(folder).layers(SENTENCES), strict=True):
        assert layers.dtype == np.float32
        np.testing.assert_allclose(layers, reference(folder, sentence), atol=1e-5)
        if len(sentence) > 1 and not published:
            assert np.abs(layers[1]).max() == np.float32(0.1)  # the projection is clipped


def test_layer_0_repeats_the_token_and_batches_do_not_change_layers(tmp_path: Path) -> None:
    elmo = load(write_random(tmp_path / "elmo"))
    together = elmo.layers(SENTENCES, batch_size=3)
    for sentence, layers in zip(SENTENCES, together, strict=True):
        assert layers.shape == (3, len(sentence), elmo.dim)
        np.testing.assert_array_equal(layers[0, :, : elmo.dim // 2], layers[0, :, elmo.dim // 2 :])
        np.testing.assert_allclose(elmo.layers([sentence])[0], layers, atol=1e-6)


def test_invalid_files_are_named(tmp_path: Path) -> None:
    folder = write_random(tmp_path / "elmo")
    options, weights = folder / "options.json", folder / "lm_weights.hdf5"
    with pytest.raises(FileNotFoundError, match="no such file"):
        Elmo.load(options, folder / "other.hdf5")
    values = json.loads(options.read_text())
    values["lstm"]["projection_dim"] = 2
    (folder / "other.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match="belong to different networks"):
        Elmo.load(folder / "other.json", weights)
    (folder / "empty.json").write_text("{}")
    with pytest.raises(ValueError, match=r"is not an options\.json of ELMo"):
        Elmo.load(folder / "empty.json", weights)
    weights.write_bytes(weights.read_bytes()[:2000])
    with pytest.raises(ValueError, match="is truncated"):
        Elmo.load(options, weights)
