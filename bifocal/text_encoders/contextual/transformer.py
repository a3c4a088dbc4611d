"""A pretrained transformer that trains with the embedding."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.text.transformer.folder import NETWORK, TransformerFolder
from bifocal.text.transformer.network import Transformer, inside, pool
from bifocal.text_encoders.base import TextEncoder
from bifocal.text_encoders.contextual.tuning import AllLayers, Tuning, merge_adapters

MINILM: Mapping[str, Any] = MappingProxyType(
    {
        "model_type": "bert",
        "vocab_size": 30522,
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "intermediate_size": 1536,
        "max_position_embeddings": 512,
    }
)
"""Configuration of all-MiniLM-L6-v2."""


class TransformerEncoder(TextEncoder):
    """A transformer over subwords, a pooling and an affine map, l2-normalized; the transformer
    trains, too.

    Devlin et al., "BERT", NAACL 2019; Reimers and Gurevych, "Sentence-BERT", EMNLP 2019, section 3.
    The training starts from the weights that ``Subwords`` stored with the text. The transformer is
    the module ``text_encoder.transformer``:
    ``learning_rate_factors: {text_encoder.transformer: 0.05}`` gives it a learning rate of its own.

    Args:
        input_dim: K, dimension of the hidden states.
        dim: d, dimension of the embedding.
        train: weights of the transformer that train: ``AllLayers``, ``LastLayers`` or ``LoRA``, see
            ``bifocal.text_encoders.contextual.tuning``; None for ``AllLayers``.
        pooling: how the states become one vector: their mean, their maximum, or the state of the
            first token. Layers that the published encoder has after its pooling are left out.
        network: configuration of the transformer; None: all-MiniLM-L6-v2.

    Shape:
        values (B, T) int64, ids of subwords, and lengths (B,) in [1, T] -> (B, d).

    Raises:
        ValueError: ``input_dim`` differs from the network's, or ``train`` does not fit the network.

    Example:
        >>> from bifocal.text_encoders.contextual.tuning import LastLayers
        >>> encoder = TransformerEncoder(dim=4, train=LastLayers(layers=1)).eval()
        >>> encoder(
        ...     torch.tensor([[101, 1037, 3899, 102], [101, 102, 0, 0]]), torch.tensor([4, 2])
        ... ).shape
        torch.Size([2, 4])
    """

    parts: ClassVar[Mapping[str, str]] = {"train": "bifocal.text_encoders.contextual.tuning"}

    def __init__(
        self,
        input_dim: int = 384,
        dim: int = 1024,
        train: Tuning | None = None,
        pooling: Literal["mean_tokens", "max_tokens", "cls_token"] = "mean_tokens",
        network: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(input_dim, dim)
        self.transformer, self.pooling = (
            Transformer.new(MINILM if network is None else network),
            pooling,
        )
        if self.transformer.dim != input_dim:
            raise ValueError(
                f"input_dim is {input_dim}, and the states of the network have "
                f"{self.transformer.dim}"
            )
        self.projection = nn.Linear(input_dim, dim)
        (train or AllLayers())(self.transformer)

    @property
    def input_shape(self) -> tuple[str | int, ...]:
        return ("batch", "time")

    @property
    def subwords(self) -> int:
        """Number of ids."""
        config: Any = self.transformer.network.config
        return int(config.vocab_size)

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        if not torch.compiler.is_exporting():
            _check_ids(values, lengths)
        states = self.transformer(values, lengths)[-1]
        return normalize(
            self.projection(pool(self.pooling, states, inside(values, lengths))), dim=1
        )

    def load_pretrained(self, directory: Path) -> None:
        """Load the weights of the transformer that ``Subwords`` stored with the text in
        ``directory``."""
        state = Transformer.load(
            TransformerFolder.read(directory / NETWORK).transformer
        ).state_dict()
        own = self.transformer.state_dict()
        # LoRA nests the layers that it adapts, and adds weights of its own.
        names = {
            name.replace(".layer.weight", ".weight").replace(".layer.bias", ".bias"): name
            for name in own
        }
        self.transformer.load_state_dict(
            own | {names[name]: tensor for name, tensor in state.items()}
        )

    def merge_adapters(self) -> None:
        """Add the changes of ``LoRA`` to the weights."""
        merge_adapters(self.transformer)


def _check_ids(values: Tensor, lengths: Tensor) -> None:
    if values.ndim != 2 or values.is_floating_point() or lengths.shape != values.shape[:1]:
        raise ValueError(
            f"values {tuple(values.shape)} of {values.dtype} and lengths "
            f"{tuple(lengths.shape)}, expected integers (B, T) and (B,): TransformerEncoder "
            "needs ids of subwords; vectorize with Subwords"
        )
    if len(lengths) and not 1 <= int(lengths.min()) <= int(lengths.max()) <= values.shape[1]:
        raise ValueError(
            f"lengths lie in [{int(lengths.min())}, {int(lengths.max())}], expected [1, "
            f"{values.shape[1]}]"
        )
