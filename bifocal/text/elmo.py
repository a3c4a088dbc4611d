"""ELMo, a bidirectional language model over spelled words (Peters et al., NAACL 2018, section 3),
and its files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

from bifocal.onnx.files import parse_json
from bifocal.onnx.text.captions import SYMBOLS, spell_sentences

FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


@dataclass(frozen=True)
class ElmoOptions:
    """Sizes of the network; the defaults are the sizes of the published network."""

    symbol_dim: int = 16  # dimension of a letter's embedding
    filters: tuple[tuple[int, int], ...] = (
        FILTERS  # (width in letters, number of filters) of each convolution
    )
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
        return cls(
            **values | {"filters": tuple((width, count) for width, count in values["filters"])}
        )


def read_options(path: Path) -> ElmoOptions:
    """Read ``options.json``."""
    try:
        options = parse_json(path.read_bytes())
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
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not an options.json of ELMo ({type(error).__name__}: {error})"
        ) from error


def read_weights(path: Path, options: ElmoOptions) -> dict[str, Tensor]:
    """Read the weights, by their names in :class:`bifocal.text.elmo.Elmo`."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected the HDF5 weights of ELMo")
    try:
        with h5py.File(path, "r") as file:
            return {
                name: torch.from_numpy(np.ascontiguousarray(value))
                for name, value in _weights(file, options)
            }
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
            weights.append(
                (f"tokens.{name}.{index}.weight", file[f"CNN_high_{index}/W_{key}"][...].T)
            )
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


class CharCNN(nn.Module):
    """Vectors of words from their letters by convolutions and highway layers: (N, symbols) -> (N,
    P)."""

    def __init__(self, options: ElmoOptions) -> None:
        super().__init__()
        width = sum(count for _, count in options.filters)
        self.activation = {"relu": torch.relu, "tanh": torch.tanh}[options.activation]
        self.embedding = nn.Embedding(SYMBOLS, options.symbol_dim)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(options.symbol_dim, count, kernel_size=size)
            for size, count in options.filters
        )
        self.transforms = nn.ModuleList(nn.Linear(width, width) for _ in range(options.highways))
        self.carries = nn.ModuleList(nn.Linear(width, width) for _ in range(options.highways))
        self.projection = nn.Linear(width, options.projection_dim)

    def forward(self, symbols: Tensor) -> Tensor:
        letters = self.embedding(symbols).transpose(1, 2)
        x = torch.cat(
            [self.activation(convolve(letters).amax(dim=2)) for convolve in self.convolutions],
            dim=1,
        )
        for transform, carry in zip(self.transforms, self.carries, strict=True):
            x = torch.lerp(x, torch.relu(transform(x)), torch.sigmoid(carry(x)))
        projected: Tensor = self.projection(x)
        return projected


class ProjectedLSTM(nn.Module):
    """LSTM (gates: input, candidate, forget, output) that clips cell and projected output: (T, B,
    P) -> (T, B, P)."""

    def __init__(self, options: ElmoOptions) -> None:
        super().__init__()
        dim, projection = options.lstm_dim, options.projection_dim
        self.cell_clip, self.projection_clip = options.cell_clip, options.projection_clip
        bound = projection**-0.5
        self.from_input = nn.Parameter(torch.empty(4 * dim, projection).uniform_(-bound, bound))
        self.from_output = nn.Parameter(torch.empty(4 * dim, projection).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(4 * dim))
        self.projection = nn.Parameter(
            torch.empty(projection, dim).uniform_(-(dim**-0.5), dim**-0.5)
        )
        with torch.no_grad():
            self.bias[2 * dim : 3 * dim] = 1.0  # forget gates start open

    def forward(self, x: Tensor) -> Tensor:
        gates = nn.functional.linear(x, self.from_input, self.bias)
        output = x.new_zeros(x.shape[1], x.shape[2])
        cell = x.new_zeros(x.shape[1], self.projection.shape[1])
        if torch.compiler.is_exporting():

            def step_of_scan(
                state: tuple[Tensor, Tensor], step: Tensor
            ) -> tuple[tuple[Tensor, Tensor], Tensor]:
                output, cell = self._step(step, *state)
                return (output, cell), output.clone()

            # The exported graph of a Python loop has as many steps as the example.
            return cast(Tensor, scan(step_of_scan, (output, cell), gates)[1])
        outputs = []
        for step in gates:
            output, cell = self._step(step, output, cell)
            outputs.append(output)
        return torch.stack(outputs)

    def _step(self, gates: Tensor, output: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return output and cell of a step from the input's share of the gates, and the previous
        output and cell."""
        entry, candidate, forget, exit = torch.addmm(gates, output, self.from_output.T).chunk(
            4, dim=1
        )
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(entry) * torch.tanh(candidate)
        cell = cell.clamp(-self.cell_clip, self.cell_clip)
        output = (torch.sigmoid(exit) * torch.tanh(cell)) @ self.projection.T
        return output.clamp(-self.projection_clip, self.projection_clip), cell


class Elmo(nn.Module):
    """Bidirectional language model without its softmax, of the published sizes by default."""

    def __init__(self, options: ElmoOptions | None = None) -> None:
        super().__init__()
        self.options = options or ElmoOptions()
        self.tokens = CharCNN(self.options)
        self.forwards = nn.ModuleList(
            ProjectedLSTM(self.options) for _ in range(self.options.layers)
        )
        self.backwards = nn.ModuleList(
            ProjectedLSTM(self.options) for _ in range(self.options.layers)
        )

    @classmethod
    def load(cls, options_path: Path | str, weights_path: Path | str) -> "Elmo":
        """Read the published format: ``options.json`` and ``*.hdf5``."""
        options = read_options(Path(options_path))
        elmo = cls(options)
        weights = read_weights(Path(weights_path), options)
        for name, parameter in elmo.state_dict().items():
            if weights[name].shape != parameter.shape:
                raise ValueError(
                    f"{weights_path}: {name} is {tuple(weights[name].shape)}, expected "
                    f"{tuple(parameter.shape)} by {options_path}: the two files belong to "
                    "different networks"
                )
        elmo.load_state_dict(weights)
        return elmo.eval()

    @property
    def device(self) -> torch.device:
        return self.tokens.projection.weight.device

    @property
    def dim(self) -> int:
        """K, dimension of the vector of a layer: twice the projection."""
        return 2 * self.options.projection_dim

    def forward(self, symbols: Tensor, words: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return the 1 + layers outputs (2, T, B, P), undefined after ``lengths``: see
        ``onnx.text.spelling``."""
        x = self.tokens(symbols)[words]
        mirror = mirrored(lengths, words.shape[0])[..., None].expand_as(x)
        ahead, back = x, x.gather(0, mirror)
        layers = [torch.stack([x, x])]
        for index, (forwards, backwards) in enumerate(
            zip(self.forwards, self.backwards, strict=True)
        ):
            skip = float(index > 0 and self.options.skip_connections)
            ahead, back = forwards(ahead) + skip * ahead, backwards(back) + skip * back
            layers.append(torch.stack([ahead, back.gather(0, mirror)]))
        return layers

    @torch.inference_mode()
    def layers(
        self, sentences: Sequence[Sequence[str]], batch_size: int = 64
    ) -> list[NDArray[np.float32]]:
        """Return layers (3, T, 2 P) of every sentence; layer 0 is the token's vector, twice."""
        order = sorted(range(len(sentences)), key=lambda row: len(sentences[row]))
        results: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(sentences)
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            symbols, words, lengths = self.batch([sentences[row] for row in rows])
            layers = torch.stack(
                [torch.cat(tuple(layer), dim=2) for layer in self(symbols, words, lengths)]
            )
            for column, row in enumerate(rows):
                results[row] = layers[:, 1 : 1 + len(sentences[row]), column].cpu().numpy().copy()
        return results

    def batch(self, sentences: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the arguments of :meth:`forward` for ``sentences``."""
        arrays = spell_sentences(sentences, self.options.max_symbols)
        symbols, words, lengths = (torch.from_numpy(array).to(self.device) for array in arrays)
        return symbols, words, lengths


def mirrored(lengths: Tensor, time: int) -> Tensor:
    """Return (T, B) step indices that reverse each sentence; padding keeps its position."""
    steps = torch.arange(time, device=lengths.device)[:, None]
    back = lengths - 1 - steps
    return torch.where(back >= 0, back, steps)
