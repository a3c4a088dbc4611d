"""Captions as the layers of ELMo."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from bifocal.onnx.text.captions import (
    MAX_TOKENS,
    UNKNOWN,
    EncodedCaptions,
    TextFormat,
    ignored_arguments,
    tokenize,
)
from bifocal.serialization import load_config, load_state, save_network
from bifocal.text.elmo import FILTERS, Elmo, ElmoOptions

NETWORK = "elmo"
"""Folder of the network below the folder of the text."""
TRAINING_ARGUMENTS = ("projection_dim", "lstm_dim", "filters", "epochs", "learning_rate", "samples")
"""Arguments that only the training uses."""


@dataclass
class ElmoLayers:
    """Contextual vectors: the layers of ELMo for every token, as float16.

    Peters et al., NAACL 2018. The network is a published one, or a smaller one that is trained on
    the training captions. Tokens keep their case. An empty caption is the one token ``<unk>``,
    spelled like any other token.

    Args:
        projection_dim: P; the vector of a layer has K = 2 P numbers.
        lstm_dim: dimension of an LSTM cell.
        filters: (width in letters, number of filters) of each convolution over the letters of a
            word.
        epochs: epochs of training.
        batch_size: sentences per batch, in training and in use.
        learning_rate: learning rate of Adam.
        samples: sampled words of the softmax; with at most as many different words the softmax is
            exact.
        path: folder with ``options.json`` and one ``*.hdf5`` of a published network; None trains a
            network.
        train: ``bifocal.training.pretraining.elmo.pretrain_elmo``, which trains a network if there
            is no ``path``.

    Raises:
        ValueError: ``fit`` has neither ``path`` nor ``train``.

    Example:
        >>> from bifocal.training.pretraining.elmo import pretrain_elmo
        >>> vectorizer = ElmoLayers(4, 6, filters=((1, 3), (2, 4)), epochs=1, train=pretrain_elmo)
        >>> metrics = vectorizer.fit(["A dog runs", "A cat runs"], seed=0)
        >>> vectorizer.format
        TextFormat(name='contextual', dim=8, layers=3)
    """

    projection_dim: int = 512
    lstm_dim: int = 4096
    filters: tuple[tuple[int, int], ...] = FILTERS
    epochs: int = 10
    batch_size: int = 128
    learning_rate: float = 1e-3
    samples: int = 8192
    path: Path | str | None = None
    train: Callable[..., list[float]] | None = field(default=None, repr=False)
    elmo: Elmo = field(init=False, repr=False)

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        if arguments.get("path") is not None:
            yield from ignored_arguments(
                arguments, TRAINING_ARGUMENTS, "with path, which gives a trained network"
            )

    @property
    def format(self) -> TextFormat:
        """Contextual vectors: the layer of the tokens and one layer per LSTM."""
        return TextFormat("contextual", self.elmo.dim, 1 + self.elmo.options.layers)

    def fit(
        self, captions: Sequence[str], seed: int, checkpoints: Path | None = None
    ) -> dict[str, float]:
        """Load the published network, or train one."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if self.path is not None:
            folder = Path(self.path)
            weights = sorted(folder.glob("*.hdf5"))
            if len(weights) != 1 or not (folder / "options.json").is_file():
                raise FileNotFoundError(
                    f"{folder} must contain options.json and one *.hdf5; it has {len(weights)}"
                )
            self.elmo = Elmo.load(folder / "options.json", weights[0]).to(device)
            return {}
        if self.train is None:
            raise ValueError(
                "ElmoLayers has neither path nor train: give the folder of a published network, or "
                "train=bifocal.training.pretraining.elmo.pretrain_elmo"
            )
        sentences = [_truncate(caption)[0] for caption in captions]
        counts = Counter(token for sentence in sentences for token in sentence)
        with torch.random.fork_rng(devices=[]), TemporaryDirectory() as temporary:
            torch.manual_seed(seed)
            options = ElmoOptions(
                filters=self.filters, lstm_dim=self.lstm_dim, projection_dim=self.projection_dim
            )
            self.elmo = Elmo(options).to(device)
            history = self.train(
                self.elmo,
                sentences,
                sorted(counts, key=lambda word: (-counts[word], word)),
                seed=seed,
                epochs=self.epochs,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                samples=self.samples,
                checkpoints=checkpoints or Path(temporary),
            )
        return {"perplexity_untrained": history[0], "perplexity": history[-1]}

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        """Return the layers of each caption."""
        truncated = [_truncate(caption) for caption in captions]
        counts = {
            "tokens": sum(len(tokens) for tokens, _ in truncated),
            "empty_captions": sum(length == 0 for _, length in truncated),
            "truncated_captions": sum(length > MAX_TOKENS for _, length in truncated),
        }
        layers = self.elmo.layers([tokens for tokens, _ in truncated], self.batch_size)
        return EncodedCaptions([row.astype(np.float16).ravel() for row in layers], counts=counts)

    def save(self, directory: Path) -> None:
        save_network(directory / NETWORK, asdict(self.elmo.options), self.elmo.state_dict())

    def load(self, directory: Path) -> None:
        self.elmo = Elmo(ElmoOptions.from_json(load_config(directory / NETWORK, "ELMo")))
        self.elmo.load_state_dict(load_state(directory / NETWORK, "ELMo"))
        self.elmo.eval()


def _truncate(caption: str) -> tuple[list[str], int]:
    """Return at most ``MAX_TOKENS`` tokens, and the number of tokens of the caption."""
    tokens = tokenize(caption, lower=False)
    return tokens[:MAX_TOKENS] or [UNKNOWN], len(tokens)
