"""ELMo's published format: ``options.json`` and weights in HDF5."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch import Tensor

FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


@dataclass(frozen=True)
class ElmoOptions:
    """Sizes of the network; the defaults are those of the published model.

    Attributes:
        symbol_dim: of a letter's vector. filters: (width in letters, count). max_symbols: letters of a word, at most.
        activation: of the convolutions, "relu" or "tanh". highways: number of highway layers.
        lstm_dim: of a cell. projection_dim: P, of an LSTM's output. layers: of each direction.
        cell_clip, projection_clip: bounds of the cell and of the output.
        skip_connections: a layer above the first adds its input to its output.
    """

    symbol_dim: int = 16
    filters: tuple[tuple[int, int], ...] = FILTERS
    max_symbols: int = 50
    activation: str = "relu"
    highways: int = 2
    lstm_dim: int = 4096
    projection_dim: int = 512
    layers: int = 2
    cell_clip: float = 3.0
    projection_clip: float = 3.0
    skip_connections: bool = True

    @classmethod
    def of(cls, values: dict[str, Any]) -> "ElmoOptions":
        """From what :meth:`values` gave, by way of JSON."""
        return cls(**values | {"filters": tuple((width, count) for width, count in values["filters"])})

    def values(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def read_options(path: Path) -> ElmoOptions:
    """Read ``options.json``.

    Raises:
        ValueError: it is no JSON, or a value is missing.
    """
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
        raise ValueError(f"{path} is no options.json of ELMo ({type(error).__name__}: {error})") from error


def read_weights(path: Path, options: ElmoOptions) -> dict[str, Tensor]:
    """The weights by the names that :class:`bifocal.text.elmo.network.Elmo` gives them.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is cut off, no HDF5, or lacks a weight.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; ELMo's weights are an *.hdf5 beside its options.json")
    try:
        with h5py.File(path, "r") as file:
            return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in _weights(file, options)}
    except (OSError, KeyError) as error:
        raise ValueError(f"{path} is cut off, or lacks a weight of ELMo ({error})") from error


def _weights(file: Any, options: ElmoOptions) -> list[tuple[str, np.ndarray]]:
    found: list[tuple[str, np.ndarray]] = [("tokens.embedding.weight", file["char_embed"][...])]
    for index in range(len(options.filters)):
        name = f"tokens.convolutions.{index}"
        found.append((f"{name}.weight", file[f"CNN/W_cnn_{index}"][0].transpose(2, 1, 0)))
        found.append((f"{name}.bias", file[f"CNN/b_cnn_{index}"][...]))
    for index in range(options.highways):
        for name, key in (("transforms", "transform"), ("carries", "carry")):
            found.append((f"tokens.{name}.{index}.weight", file[f"CNN_high_{index}/W_{key}"][...].T))
            found.append((f"tokens.{name}.{index}.bias", file[f"CNN_high_{index}/b_{key}"][...]))
    found.append(("tokens.projection.weight", file["CNN_proj/W_proj"][...].T))
    found.append(("tokens.projection.bias", file["CNN_proj/b_proj"][...]))
    for number, direction in enumerate(("forwards", "backwards")):
        for index in range(options.layers):
            cell = file[f"RNN_{number}/RNN/MultiRNNCell/Cell{index}/LSTMCell"]
            both, bias = cell["W_0"][...].T, cell["B"][...]
            # The network that wrote these files adds 1 to its forget gates; here that stands in the bias.
            bias[2 * options.lstm_dim : 3 * options.lstm_dim] += 1.0
            found.append((f"{direction}.{index}.from_input", both[:, : options.projection_dim]))
            found.append((f"{direction}.{index}.from_output", both[:, options.projection_dim :]))
            found.append((f"{direction}.{index}.bias", bias))
            found.append((f"{direction}.{index}.projection", cell["W_P_0"][...].T))
    return found
