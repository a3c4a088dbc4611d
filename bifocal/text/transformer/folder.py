"""Folders of pretrained transformers, as Hugging Face and sentence-transformers publish them. Loads
without torch."""

import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bifocal.backbones.hub import download
from bifocal.backbones.networks import EXCLUDED_FILES, SENTENCE_FILES
from bifocal.durable import file_digest
from bifocal.onnx.files import parse_json, read_json
from bifocal.onnx.text.tokenizer import TOKENIZER, SubwordTokenizer

CONFIG, WEIGHTS = "config.json", "*.safetensors*"
NETWORK = "transformer"
"""Folder of the network below the folder of a text."""
MODULES, SENTENCE_CONFIG = "modules.json", "sentence_bert_config.json"
POOLINGS = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "lasttoken")
"""Poolings in the order in which sentence-transformers concatenates them."""
MAX_TOKENS = 512
"""Longest input of a network whose files give no limit."""
OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet")
"""Networks whose first position follows the id of the padding."""
NOT_OF_THE_NETWORK = (
    "_name_or_path",
    "architectures",
    "dtype",
    "torch_dtype",
    "transformers_version",
)
"""Names in ``config.json`` that do not describe the network."""
EXCLUDED = (".", "onnx", "openvino")
"""Beginnings of the names of folders with other copies of the weights."""


@dataclass(frozen=True)
class DenseLayer:
    """A fully connected layer."""

    folder: Path
    activation: str  # "Identity", "Tanh" or "ReLU"


@dataclass(frozen=True)
class TransformerFolder:
    """Files of a transformer and of the modules after it."""

    root: Path
    transformer: Path  # folder of ``config.json`` and of the weights; the root itself, or below it
    poolings: tuple[
        str, ...
    ]  # names in ``POOLINGS``; a folder without ``modules.json`` has the mean of the tokens
    layers: tuple[DenseLayer | None, ...]  # after the pooling; None divides a vector by its norm
    max_tokens: int  # special tokens included

    @classmethod
    def read(cls, path: Path) -> "TransformerFolder":
        """Read the small files of a folder."""
        entries = parse_json((path / MODULES).read_bytes()) if (path / MODULES).is_file() else []
        modules = [
            (str(entry["type"]).rpartition(".")[2], path / entry["path"]) for entry in entries
        ]
        transformer = next((folder for kind, folder in modules if kind == "Transformer"), path)
        for name in (CONFIG, TOKENIZER, WEIGHTS):
            if not any(transformer.glob(name)):
                raise FileNotFoundError(
                    f"{transformer} has no {name}: expected the folder of a transformer with "
                    f"{CONFIG}, {TOKENIZER} and model.safetensors"
                )
        poolings: tuple[str, ...] = ("mean_tokens",)
        layers: list[DenseLayer | None] = []
        for kind, folder in modules:
            if kind == "Pooling":
                poolings = _poolings(folder / CONFIG)
            elif kind == "Dense":
                layers.append(DenseLayer(folder, _activation(folder / CONFIG)))
            elif kind == "Normalize":
                layers.append(None)
            elif kind != "Transformer":
                raise ValueError(
                    f"{path / MODULES} has a module {kind!r}; supported are Transformer, "
                    "Pooling, Dense and Normalize"
                )
        return cls(path, transformer, poolings, tuple(layers), _max_tokens(transformer))

    def tokenizer(self) -> SubwordTokenizer:
        """Return the tokenizer, which truncates to the longest input."""
        return SubwordTokenizer.read(self.transformer / TOKENIZER, self.max_tokens)

    @property
    def config(self) -> dict[str, Any]:
        """Configuration of the network, without its name and the version and data type of its
        file."""
        config: dict[str, Any] = read_json(self.transformer / CONFIG)
        return {name: value for name, value in config.items() if name not in NOT_OF_THE_NETWORK}

    def identity(self) -> str:
        """Return what the vectors depend on besides the tokens: network, poolings, layers and
        digests of weights."""
        weights = [file_digest(file) for file in sorted(self.root.rglob("*.safetensors"))]
        return repr(
            (
                self.config,
                self.poolings,
                [layer and layer.activation for layer in self.layers],
                weights,
            )
        )

    def parameters(self) -> int:
        """Return the number of weights, by the headers of their files."""
        files = self.transformer.glob("*.safetensors")
        return sum(math.prod(shape) for file in files for shape in _tensor_shapes(file))

    def copy(self, target: Path) -> None:
        """Copy the files that :meth:`read` needs."""
        target.mkdir(exist_ok=True)
        for path in sorted(self.root.rglob("*")):
            name = path.relative_to(self.root)
            wanted = path.suffix == ".json" or path.match(WEIGHTS)
            if (
                path.is_file()
                and wanted
                and len(name.parts) <= 2
                and not name.parts[0].startswith(EXCLUDED)
            ):
                (target / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(path, target / name)


def _tensor_shapes(file: Path) -> list[tuple[int, ...]]:
    with file.open("rb") as opened:
        header = parse_json(opened.read(int.from_bytes(opened.read(8), "little")))
    return [tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"]


def _poolings(file: Path) -> tuple[str, ...]:
    config: dict[str, Any] = read_json(file)
    if "pooling_mode" in config:  # sentence-transformers 5.4 and later
        modes = config["pooling_mode"]
        names = {
            "cls": "cls_token",
            "max": "max_tokens",
            "mean": "mean_tokens",
            "mean_sqrt_len": POOLINGS[3],
        }
        chosen = tuple(
            names.get(mode, mode) for mode in ([modes] if isinstance(modes, str) else modes)
        )
    else:
        chosen = tuple(name for name in POOLINGS if config.get(f"pooling_mode_{name}"))
    unknown = [
        *set(chosen) - set(POOLINGS),
        *(["weightedmean"] if config.get("pooling_mode_weightedmean_tokens") else []),
    ]
    if unknown or not chosen:
        raise ValueError(
            f"{file} has the pooling {', '.join(unknown) or 'none'}; supported are "
            f"{', '.join(POOLINGS)}"
        )
    return chosen


def _activation(file: Path) -> str:
    name = str(read_json(file).get("activation_function", "Tanh")).rpartition(".")[2]
    if name not in ("Identity", "Tanh", "ReLU"):
        raise ValueError(f"{file} has the activation {name}; supported are Identity, Tanh and ReLU")
    return name


def _max_tokens(transformer: Path) -> int:
    config = read_json(transformer / CONFIG)
    limit = config.get("max_position_embeddings", MAX_TOKENS)
    limit -= config.get("pad_token_id", 0) + 1 if config["model_type"] in OFFSET_POSITIONS else 0
    file = transformer / SENTENCE_CONFIG
    given = read_json(file).get("max_seq_length") if file.is_file() else None
    return int(min(limit, given or limit))


def find_folder(model: str | None, path: Path | str | None) -> TransformerFolder:
    """Return the files of the folder ``path``, or of ``model`` on the Hugging Face hub."""
    for problem in one_source({"model": model, "path": path}):
        raise ValueError(problem)
    if path is not None:
        return TransformerFolder.read(Path(path))
    try:
        folder = download(str(model), SENTENCE_FILES, EXCLUDED_FILES)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{error}. Set path to a folder with them, in place of model"
        ) from error
    return TransformerFolder.read(folder)


def one_source(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message if both or neither of ``model`` and ``path`` are given."""
    given = [name for name in ("model", "path") if arguments.get(name) is not None]
    if not given:
        yield (
            "path is missing: set it to the folder of a pretrained transformer, or model to "
            "its name on Hugging Face"
        )
    elif len(given) > 1:
        yield (
            f"model {arguments['model']!r} and path {arguments['path']!r} are both given: "
            "leave one out"
        )
