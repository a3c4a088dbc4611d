"""Captions as ELMo's layers."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from bifocal.pretraining.elmo import pretrain
from bifocal.text.elmo.format import FILTERS, ElmoOptions
from bifocal.text.elmo.network import Elmo
from bifocal.text.format import Layout, Rows
from bifocal.text.tokens import MAX_TOKENS, UNKNOWN, tokenize

OPTIONS, WEIGHTS = "elmo.json", "elmo.safetensors"


@dataclass
class ElmoLayers:
    """Contextual vectors: the layers of ELMo for every token, as float16.

    Peters et al., NAACL 2018. With ``path``, a folder that holds ``options.json`` and one ``*.hdf5``, the published
    model; without, a model of the sizes below is trained on the training captions. Tokens keep their case. An empty
    caption is the one token ``<unk>``, spelled like any other.

    Args:
        projection_dim: P; a layer's vector has K = 2 P numbers.
        lstm_dim: of a cell.
        filters: (width in letters, count) of the convolutions.
        epochs: of training.
        batch_size: sentences, in training and after.
        learning_rate: of Adam.
        samples: of the sampled softmax, which is taken when the captions have more different words.
        path: the folder.
    """

    projection_dim: int = 512
    lstm_dim: int = 4096
    filters: tuple[tuple[int, int], ...] = FILTERS
    epochs: int = 10
    batch_size: int = 128
    learning_rate: float = 1e-3
    samples: int = 8192
    path: Path | str | None = None
    elmo: Elmo = field(init=False, repr=False)

    @property
    def layout(self) -> Layout:
        """The token's own layer and those of the LSTMs."""
        return Layout("contextual", self.elmo.dim, 1 + self.elmo.options.layers)

    def fit(self, captions: Sequence[str], seed: int) -> dict[str, float]:
        """Load the published model, or train one.

        Raises:
            FileNotFoundError: the folder does not hold both files.
        """
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if self.path is not None:
            folder = Path(self.path)
            weights = sorted(folder.glob("*.hdf5"))
            if len(weights) != 1 or not (folder / "options.json").is_file():
                raise FileNotFoundError(f"{folder} must contain options.json and one *.hdf5; it has {len(weights)}")
            self.elmo = Elmo.load(folder / "options.json", weights[0]).to(device)
            return {}
        sentences = [_tokens(caption)[0] for caption in captions]
        counts = Counter(token for sentence in sentences for token in sentence)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            options = ElmoOptions(filters=self.filters, lstm_dim=self.lstm_dim, projection_dim=self.projection_dim)
            self.elmo = Elmo(options).to(device)
            history = pretrain(
                self.elmo,
                sentences,
                sorted(counts, key=lambda word: (-counts[word], word)),
                seed=seed,
                epochs=self.epochs,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                samples=self.samples,
            )
        return {"perplexity_untrained": history[0], "perplexity": history[-1]}

    def rows(self, captions: Sequence[str]) -> Rows:
        """The layers of each caption."""
        read = [_tokens(caption) for caption in captions]
        counts = {
            "tokens": sum(len(tokens) for tokens, _ in read),
            "empty_captions": sum(length == 0 for _, length in read),
            "truncated_captions": sum(length > MAX_TOKENS for _, length in read),
        }
        layers = self.elmo.layers([tokens for tokens, _ in read], self.batch_size)
        return Rows([row.astype(np.float16).ravel() for row in layers], counts=counts)

    def save(self, directory: Path) -> None:
        """Write the network and its sizes."""
        (directory / OPTIONS).write_text(json.dumps(self.elmo.options.values(), indent=2, sort_keys=True) + "\n")
        save_file(self.elmo.state_dict(), directory / WEIGHTS)

    def load(self, directory: Path) -> None:
        """Read what :meth:`save` wrote."""
        self.elmo = Elmo(ElmoOptions.of(json.loads((directory / OPTIONS).read_text())))
        self.elmo.load_state_dict(load_file(directory / WEIGHTS))
        self.elmo.eval()


def _tokens(caption: str) -> tuple[list[str], int]:
    tokens = tokenize(caption, lower=False)
    return tokens[:MAX_TOKENS] or [UNKNOWN], len(tokens)
