"""Base class of the encoders of one vector per caption."""

from torch import Tensor

from bifocal.text_encoders.base import TextEncoder


class VectorTextEncoder(TextEncoder):
    """Encoder of one vector per caption, such as tf-idf; the lengths are ignored."""

    @property
    def input_shape(self) -> tuple[str | int, ...]:
        """Shape of ``values``; a name stands for a dimension of any size."""
        return ("batch", self.input_dim)

    def check_vectors(self, values: Tensor) -> None:
        """Raise ``ValueError`` unless ``values`` is (B, input_dim)."""
        if values.ndim != 2 or values.shape[1] != self.input_dim:
            raise ValueError(
                f"values {tuple(values.shape)}, expected (B, {self.input_dim}): {type(self).__name__} needs one vector "
                "per caption; vectorize with TFIDF, MeanWordVectors or FisherVectors"
            )
