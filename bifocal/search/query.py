"""A query whose parts are encoded, and its results: one type from the index to the JSON of the
service."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, overload

from numpy.typing import NDArray
from PIL import Image

from bifocal.onnx.image_limits import max_pixels
from bifocal.onnx.images import open_image, unread_file

Array = NDArray[Any]
Mode = Literal["vectors", "hybrid", "regions"]
Relevance = Literal["found", "perhaps", "nothing"]
Box = tuple[float, float, float, float]
Explain = Callable[[str, Array], Any]
"""Explanation of a result from its id and the query (d,), such as ``Heatmaps(model, features)``."""


class SentenceEmbedder(Protocol):
    """A model that embeds sentences: an ``Embedder`` of ONNX graphs, or a ``TorchEmbedder``."""

    def embed_sentences(self, sentences: Sequence[str]) -> Array:
        """Return the embeddings (B, d) of B sentences."""
        ...


@dataclass(frozen=True)
class EncodedQuery:
    """A query whose texts and images are encoded; see ``Search`` for modes, filters and groups."""

    vector: Array  # (d,)
    sentence: str | None = (
        None  # None for images and sums: biases, probabilities and other modes are for sentences
    )
    mode: Mode = "vectors"
    where: Mapping[str, Any] | None = None
    exclude: Sequence[str] = ()
    group: str | None = None
    per_group: int = 1
    unknown: Sequence[str] = ()  # words that the model does not know, and leaves out

    @classmethod
    def of(
        cls,
        text: str | None,
        plus: Sequence[str],
        minus: Sequence[str],
        images: Sequence[Array],
        texts: Array,
        **options: Any,
    ) -> "EncodedQuery":
        """Return the query whose vector is the sum of its parts, less ``minus`` (Gordo and Larlus,
        CVPR 2017, section 6.2); ``texts`` has the vectors (B, d) of ``text``, ``plus`` and
        ``minus``, in this order.
        """
        if any(
            not sentence.strip() for sentence in (*plus, *minus, *([] if text is None else [text]))
        ):
            raise ValueError("the query is empty: name something to find in the images")
        positive = (text is not None) + len(plus)
        parts = [*images, *texts[:positive], *(-texts[positive:])]
        if not images and not positive:
            raise ValueError("nothing to search by: give text, like, plus or an image")
        vector: Array = sum(parts[1:], start=parts[0])
        return cls(vector, None if images or plus or minus else text, **options)


@dataclass(kw_only=True)
class ItemFacts:
    """An item of the collection.

    Attributes:
        captions: its sentences.
        metadata: its values.
        name: name of the image file without its folder; null if the collection has only features.
        width, height: pixels of the image after EXIF rotation; 0 if they are unknown.
        has_image: whether the item has a thumbnail.
    """

    id: str
    captions: list[str]
    metadata: dict[str, Any]
    name: str | None
    width: int
    height: int
    has_image: bool


@dataclass(kw_only=True, repr=False)
class SearchHit(ItemFacts):
    """One result.

    Attributes:
        score: the number that sorts the results: the cosine with the query, plus the item's hubness
            bias if the query is a sentence; in the mode "hybrid", the sum of the reciprocal ranks;
            in the mode "regions", the score of the best region.
        probability: probability that the item is relevant; null if uncalibrated, for images, sums
            and regions.
        relevance: "found" if at least 80 % of such results are right, by held-out captions;
            "nothing" if the collection probably has nothing like the sentence; else "perhaps"; null
            without a probability.
        copies: ids of items with the same file, which are no results of their own.
        box: x0 y0 x1 y1 of the best region, as fractions of width and height; null in the other
            modes.
    """

    score: float
    probability: float | None
    relevance: Relevance | None
    box: Box | None = None
    copies: list[str] = field(default_factory=list)
    row: int = field(init=False, repr=False, compare=False)
    path: Path | None = field(init=False, repr=False, compare=False)
    explanation: Any = field(init=False, repr=False, compare=False)
    """In Python only: the row in the index, the image file, and the result of ``explain``, such as
    a heatmap. ``Search.__call__`` sets the last two."""

    def __post_init__(self) -> None:
        """Start without values that only Python has."""
        self.row, self.path, self.explanation = -1, None, None

    def __repr__(self) -> str:
        """Return score, relevance and file."""
        known = "" if self.relevance is None else f" {self.relevance}"
        return f"<{self.score:.4f}{known} {self.path or self.id}>"

    def to_json(self) -> dict[str, Any]:
        """Return the fields that the service sends: a client may not know a folder."""
        public = vars(self) | {"score": round(self.score, 6)}
        del public["row"], public["path"], public["explanation"]
        return public


def relevance(probability: float | None, certain: float, absent: bool) -> Relevance | None:
    """Return the relevance of a result, see ``SearchHit``; ``absent`` if the collection probably
    has nothing like the query."""
    if probability is None:
        return None
    if absent:
        return "nothing"
    return "found" if probability >= certain else "perhaps"


class Ranking(NamedTuple):
    """Rows (n,) of an index, best first, with their scores, probabilities and boxes of regions;
    None for none."""

    rows: Array
    scores: Array
    probabilities: Array | None = None
    boxes: Sequence[Box] | None = None
    found: bool = True  # false if the collection probably has nothing like the query
    total: int = 0  # rows of the whole ranking, if they are known to be more than n

    def take(self, positions: Sequence[int]) -> "Ranking":
        """Return some of the rows."""
        boxes = None if self.boxes is None else [self.boxes[position] for position in positions]
        known = None if self.probabilities is None else self.probabilities[positions]
        return Ranking(self.rows[positions], self.scores[positions], known, boxes, self.found)


@dataclass(repr=False)
class Results(Sequence[SearchHit]):
    """Answer to a search, a sequence of its results.

    Attributes:
        results: best first.
        found: false if there is no result, or if the collection probably has nothing like the
            sentence: the results are then the closest items. Judged on the first page, for only a
            sentence in the mode "vectors"; else true.
        items: number of items that were searched.
        more: whether a further page has results.
        model: version of the model and index that answered.
        unknown: words of the query that the model does not know: the others were searched.
        answer: id for the route "click"; null unless the clicks of two releases are compared.
    """

    results: list[SearchHit]
    found: bool
    items: int
    more: bool
    model: str
    unknown: list[str]
    answer: str | None = None
    relevance: float | None = field(init=False, repr=False, compare=False)
    """In Python only: probability that the first result is relevant, 0 without a result; None if
    the query has none."""

    def __post_init__(self) -> None:
        """Start without a probability; without a result, nothing is found."""
        self.relevance, self.found = None, self.found and len(self.results) > 0

    def __repr__(self) -> str:
        """Return the results, a line for each."""
        notes = ["" if self.found else "nothing like it"]
        notes += [f"unknown words: {', '.join(self.unknown)}"] if self.unknown else []
        first = f"<{len(self)} of {self.items} items{', '.join(['', *filter(None, notes)])}"
        return "\n  ".join([first, *map(repr, self.results)]) + ">"

    def __len__(self) -> int:
        """Return the number of results."""
        return len(self.results)

    @overload
    def __getitem__(self, place: int) -> SearchHit: ...

    @overload
    def __getitem__(self, place: slice) -> list[SearchHit]: ...

    def __getitem__(self, place: int | slice) -> SearchHit | list[SearchHit]:
        """Return a result, or some of them."""
        return self.results[place]

    def to_json(self) -> dict[str, Any]:
        """Return the fields that the service sends, with those of the results."""
        public = vars(self) | {"results": [hit.to_json() for hit in self.results]}
        del public["relevance"]
        return public


def encode_file(image: Path | str | Image.Image | bytes) -> bytes:
    """Return the bytes of an image file; an image of Pillow becomes a file without loss."""
    if isinstance(image, bytes):
        return image
    if isinstance(image, Path | str):
        return Path(image).read_bytes()
    if isinstance(image, Image.Image) and (file := unread_file(image)) is not None:
        return file.getvalue()
    buffer = BytesIO()
    open_image(image, max_pixels()).save(buffer, "PPM")
    return buffer.getvalue()
