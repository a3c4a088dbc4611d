"""ELMo's published format: ``options.json`` and HDF5 weights."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch import Tensor

FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


@dataclass(frozen=True)
class ElmoOptions:
    """Sizes of the network; the defaults are the sizes of the published network."""

    symbol_dim: int = 16  # dimension of a letter's embedding
    filters: tuple[tuple[int, int], ...] = FILTERS  # (width in letters, number of filters) of each convolution
    max_symbols: int = 50  # letters of a word
    activation: str = "relu"  # of the convolutions, "relu" or "tanh"
    highways: int = 2
    lstm_dim: int = 4096  # dimension of a cell
    projection_dim: int = 512  # P, dimension of an LSTM's output
    layers: int = 2  # LSTM layers per direction
    cell_clip: float = 3.0
    projection_clip: float = 3.0
    skip_connections: bool = True  # add the input of each LSTM layer above the first to its output

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "ElmoOptions":
        """Return the options whose fields are in a JSON object."""
        return cls(**values | {"filters": tuple((width, count) for width, count in values["filters"])})


def read_options(path: Path) -> ElmoOptions:
    """Read ``options.json``."""
    try:
        options = json.loads(path.read_text())
        lstm, letters = options["lstm"], options["char_cnn"]
        return ElmoOptions(
            symbol_dim=letters["embedding"]["dim"],
            filters=tuple((width, count) for width, count in letters["filters"]),
            max_symbols=letters["max_characters_per_token"],
            activation=letters["activation"],
            highways=letters["n_highway"],
            lstm_dim=lstm["dim"],
            projection_dim=lstm["projection_dim"],
            layers=lstm["n_layers"],
            cell_clip=lstm["cell_clip"],
            projection_clip=lstm["proj_clip"],
            skip_connections=lstm["use_skip_connections"],
        )
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not an options.json of ELMo ({type(error).__name__}: {error})") from error


def read_weights(path: Path, options: ElmoOptions) -> dict[str, Tensor]:
    """Read the weights, by their names in :class:`bifocal.text.elmo.network.Elmo`."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected the HDF5 weights of ELMo")
    try:
        with h5py.File(path, "r") as file:
            return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in _weights(file, options)}
    except (OSError, KeyError) as error:
        raise ValueError(f"{path} is truncated or lacks a weight of ELMo ({error})") from error


def _weights(file: Any, options: ElmoOptions) -> list[tuple[str, np.ndarray]]:
    weights: list[tuple[str, np.ndarray]] = [("tokens.embedding.weight", file["char_embed"][...])]
    for index in range(len(options.filters)):
        name = f"tokens.convolutions.{index}"
        weights.append((f"{name}.weight", file[f"CNN/W_cnn_{index}"][0].transpose(2, 1, 0)))
        weights.append((f"{name}.bias", file[f"CNN/b_cnn_{index}"][...]))
    for index in range(options.highways):
        for name, key in (("transforms", "transform"), ("carries", "carry")):
            weights.append((f"tokens.{name}.{index}.weight", file[f"CNN_high_{index}/W_{key}"][...].T))
            weights.append((f"tokens.{name}.{index}.bias", file[f"CNN_high_{index}/b_{key}"][...]))
    weights.append(("tokens.projection.weight", file["CNN_proj/W_proj"][...].T))
    weights.append(("tokens.projection.bias", file["CNN_proj/b_proj"][...]))
    for number, direction in enumerate(("forwards", "backwards")):
        for index in range(options.layers):
            cell = file[f"RNN_{number}/RNN/MultiRNNCell/Cell{index}/LSTMCell"]
            both, bias = cell["W_0"][...].T, cell["B"][...]
            # The published code adds 1 to the forget gates; this network has it in the bias.
            bias[2 * options.lstm_dim : 3 * options.lstm_dim] += 1.0
            weights.append((f"{direction}.{index}.from_input", both[:, : options.projection_dim]))
            weights.append((f"{direction}.{index}.from_output", both[:, options.projection_dim :]))
            weights.append((f"{direction}.{index}.bias", bias))
            weights.append((f"{direction}.{index}.projection", cell["W_P_0"][...].T))
    return weights
