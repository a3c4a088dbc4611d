"""The base classes of text encoders, and padded batches of sequences."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.layers import Encoder


def check_sequences(values: Tensor, lengths: Tensor, input_dim: int) -> None:
    """Raise ``ValueError`` unless ``values`` (B, T, input_dim) holds sequences of ``lengths`` (B,),
    each in [1, T]."""
    if values.ndim != 3 or values.shape[2] != input_dim or lengths.shape != values.shape[:1]:
        raise ValueError(
            f"values {tuple(values.shape)} and lengths {tuple(lengths.shape)}, expected (B, T, "
            f"{input_dim}) and (B,): set input_dim of the text encoder to the dim of the text "
            "store"
        )
    if len(lengths) and not 1 <= int(lengths.min()) <= int(lengths.max()) <= values.shape[1]:
        raise ValueError(
            f"lengths lie in [{int(lengths.min())}, {int(lengths.max())}], expected [1, "
            f"{values.shape[1]}]: encode an empty caption as one <unk> token, as TextStore does"
        )


def last_true_step(outputs: Tensor, lengths: Tensor) -> Tensor:
    """Return row ``lengths - 1`` of each sequence: (B, T, d), (B,) -> (B, d)."""
    index = (lengths - 1)[:, None, None].expand(-1, 1, outputs.shape[2])
    return outputs.gather(1, index)[:, 0]


def reverse(values: Tensor, lengths: Tensor) -> Tensor:
    """Reverse each sequence up to its length; the padding stays at the end: (B, T, K), (B,) -> (B,
    T, K)."""
    time = torch.arange(values.shape[1], device=values.device)
    mirrored = lengths[:, None] - 1 - time
    index = torch.where(mirrored >= 0, mirrored, time)
    return values.gather(1, index[:, :, None].expand(-1, -1, values.shape[2]))


class TextEncoder(Encoder):
    """Caption encoder for vectors of ``input_dim``: ``forward(values, lengths)`` -> unit vectors
    (B, dim)."""

    @property
    def input_shape(self) -> tuple[str | int, ...]:
        """Shape of ``values``; a name stands for a dimension of any size. Here: one vector per
        token."""
        return ("batch", "time", self.input_dim)


class VectorTextEncoder(TextEncoder):
    """Encoder of one vector per caption, such as tf-idf; the lengths are ignored."""

    projection: nn.Module

    @property
    def input_shape(self) -> tuple[str | int, ...]:
        return ("batch", self.input_dim)

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        self.check_vectors(values)
        return normalize(self.projection(values), dim=1)

    def check_vectors(self, values: Tensor) -> None:
        """Raise ``ValueError`` unless ``values`` is (B, input_dim)."""
        if values.ndim != 2 or values.shape[1] != self.input_dim:
            raise ValueError(
                f"values {tuple(values.shape)}, expected (B, {self.input_dim}): "
                f"{type(self).__name__} needs one vector per caption; vectorize with TFIDF, "
                "MeanWordVectors or FisherVectors"
            )


class LayersTextEncoder(TextEncoder):
    """Encoder of contextual vectors (B, layers, T, input_dim), such as ELMo's."""

    def __init__(self, input_dim: int, dim: int, layers: int) -> None:
        super().__init__(input_dim, dim)
        self.layers = layers

    @property
    def input_shape(self) -> tuple[str | int, ...]:
        return ("batch", self.layers, "time", self.input_dim)

    def check_layers(self, values: Tensor) -> None:
        """Raise ``ValueError`` unless ``values`` is (B, layers, T, input_dim)."""
        if values.ndim != 4 or values.shape[1] != self.layers or values.shape[3] != self.input_dim:
            raise ValueError(
                f"values {tuple(values.shape)}, expected (B, {self.layers}, T, "
                f"{self.input_dim}): {type(self).__name__} needs contextual vectors; vectorize "
                "with ElmoLayers or TransformerTokens, and set layers to their number"
            )
