"""One vector per caption: what every text encoder over them checks."""

from torch import Tensor


def check_vectors(values: Tensor, input_dim: int) -> None:
    """Raise ``ValueError`` unless ``values`` is (B, input_dim)."""
    if values.ndim != 2 or values.shape[1] != input_dim:
        raise ValueError(
            f"values {tuple(values.shape)}, expected (B, {input_dim}): this text encoder reads one vector per caption; "
            "vectorize with TFIDF, MeanWordVectors or FisherVectors"
        )
