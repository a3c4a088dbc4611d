"""Encoded queries, and the model that encodes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, Protocol

from numpy.typing import NDArray
from PIL import Image

Array = NDArray[Any]
Mode = Literal["vectors", "hybrid", "regions"]


class SentenceEmbedder(Protocol):
    """A model that embeds sentences: an ``Embedder`` of ONNX graphs, or a ``TorchEmbedder``."""

    def embed_sentences(self, sentences: Sequence[str]) -> Array:
        """Return the embeddings (B, d) of B sentences."""
        ...


@dataclass(frozen=True)
class Query:
    """A query whose texts and images are encoded; see ``Search`` for modes, filters and groups."""

    vector: Array  # (d,)
    sentence: str | None = None  # None for images and sums: biases, probabilities and other modes are for sentences
    mode: Mode = "vectors"
    where: Mapping[str, Any] | None = None
    exclude: Sequence[str] = ()
    without: Array | None = None  # (N,) bool, further items to leave out
    group: str | None = None
    per_group: int = 1
    unknown: Sequence[str] = ()  # words that the model does not know, and leaves out

    @classmethod
    def of(
        cls, text: str | None, plus: Sequence[str], minus: Sequence[str], images: Sequence[Array], texts: Array,
        **options: Any,
    ) -> "Query":  # fmt: skip
        """Return the query whose vector is the sum of its parts, less ``minus`` (Gordo and Larlus, CVPR 2017, section
        6.2); ``texts`` has the vectors (B, d) of ``text``, ``plus`` and ``minus``, in this order.
        """
        if any(not sentence.strip() for sentence in (*plus, *minus, *([] if text is None else [text]))):
            raise ValueError("the query is empty: name something to find in the images")
        positive = (text is not None) + len(plus)
        parts = [*images, *texts[:positive], *(-texts[positive:])]
        if not images and not positive:
            raise ValueError("nothing to search by: give text, like, plus or an image")
        vector: Array = sum(parts[1:], start=parts[0])
        return cls(vector, None if images or plus or minus else text, **options)


def encode_file(image: Path | str | Image.Image | bytes) -> bytes:
    """Return the bytes of an image file; an image of Pillow becomes a file without loss."""
    if isinstance(image, bytes):
        return image
    if not isinstance(image, Image.Image):
        return Path(image).read_bytes()
    buffer = BytesIO()
    image.convert("RGB").save(buffer, "PPM")
    return buffer.getvalue()
