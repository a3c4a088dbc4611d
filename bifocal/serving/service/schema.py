"""Bodies of requests and answers, which FastAPI checks and describes in its OpenAPI document; see
also ``Results``."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, MaxLen, MinLen

from bifocal.search.query import ItemFacts, Mode

Sentence = Annotated[str, MinLen(1)]
STRICT = {"extra": "forbid"}
"""Configuration of pydantic: an unknown key is an error."""


@dataclass(kw_only=True)
class SearchRequest:
    """Search by a sentence, by an item, or by both with sentences added and taken away.

    Attributes:
        text: sentence to search by.
        like: id of an item to search by its image; the item is not a result.
        plus: sentences whose vectors are added to the query.
        minus: sentences whose vectors are subtracted.
        mode: "vectors"; "hybrid" to find items by the words of their captions and metadata as well;
            "regions" to find items of which one region fits. The last two need text and nothing
            else to search by.
        where: condition of each metadata column: a value, a list of values, or {"min": a, "max":
            b}.
        group: metadata column; an answer has at most per_group results with the same value.
        per_group: results of each value of group.
        k: results of the answer.
        offset: better results to leave out, such as the results of earlier pages.
    """

    __pydantic_config__: ClassVar[Any] = STRICT
    text: Sentence | None = None
    like: Sentence | None = None
    plus: list[Sentence] = field(default_factory=list)
    minus: list[Sentence] = field(default_factory=list)
    mode: Mode = "vectors"
    where: dict[str, Any] = field(default_factory=dict)
    group: Sentence | None = None
    per_group: Annotated[int, Ge(1)] = 1
    k: Annotated[int, Ge(1)] = 24
    offset: Annotated[int, Ge(0)] = 0


@dataclass(kw_only=True)
class BrowseRequest:
    """Items of the collection without a query, the newest first.

    Attributes:
        where: see ``SearchRequest``.
        k: items of the answer.
        offset: newer items to leave out, such as the items of earlier pages.
    """

    __pydantic_config__: ClassVar[Any] = STRICT
    where: dict[str, Any] = field(default_factory=dict)
    k: Annotated[int, Ge(1)] = 24
    offset: Annotated[int, Ge(0)] = 0


@dataclass(kw_only=True)
class ExplainRequest:
    """Heatmaps of a sentence's phrases in an item's image.

    Attributes:
        id: id of the item.
        text: sentence, which is split into phrases.
    """

    __pydantic_config__: ClassVar[Any] = STRICT
    id: Sentence
    text: Sentence


@dataclass(kw_only=True)
class Click:
    """A result that the client chose.

    Attributes:
        answer: id of the answer to a search.
        item: id of the item.
    """

    __pydantic_config__: ClassVar[Any] = STRICT
    answer: Sentence
    item: Sentence


@dataclass(kw_only=True)
class Correction:
    """What a person says about a result.

    Attributes:
        right: whether the text describes the item.
    """

    __pydantic_config__: ClassVar[Any] = STRICT
    item: Sentence
    text: Annotated[Sentence, MaxLen(500)]
    right: bool


@dataclass(kw_only=True)
class ItemDetails(ItemFacts):
    """An item with the size of its image file in bytes; null without a file."""

    bytes: int | None


@dataclass
class ItemPage:
    """A page of the collection.

    Attributes:
        results: the newest first, by the column "date" of the metadata; without it, the last of the
            collection first.
        items: number of items that fulfill the filter.
        more: whether a further page has items.
    """

    results: list[ItemFacts]
    items: int
    more: bool


@dataclass
class ComparisonState:
    """Comparison of two releases.

    Attributes:
        mode: "canary" or "shadow".
        share: of the clients that the candidate answers, or whose searches it repeats.
        state: "running", or why no candidate is compared now.
        report: releases, metrics with confidence intervals, and the sums that they come from; null
            before the first pair of releases.
    """

    mode: Literal["canary", "shadow"]
    share: float
    state: str
    report: dict[str, Any] | None


@dataclass
class PhraseHeatmap:
    """Place of a phrase in an image.

    Attributes:
        text: the phrase.
        start, end: its characters in the sentence.
        point: x and y of the highest value, as fractions of width and height: a guess. Null if the
            phrase is probably not in the image.
        heatmap: data URL of a PNG over the image stretched to a square; its opacity is the blurred
            cube of the heatmap, which is scaled to [0, 1]. Null without a point.
        probability: calibrated probability that the phrase is in the image; null if the model
            cannot tell.
    """

    text: str
    start: int
    end: int
    point: tuple[float, float] | None
    heatmap: str | None
    probability: float | None = None


@dataclass
class Explanation:
    """Heatmaps of the phrases of a sentence."""

    id: str
    phrases: list[PhraseHeatmap]


@dataclass
class Column:
    """Metadata that a search can be restricted by.

    Attributes:
        name: key in ``where``.
        kind: type of its values.
        values: the values, if there are few; else empty.
    """

    name: str
    kind: Literal["text", "number", "time", "boolean"]
    values: list[str]


@dataclass
class Information:
    """The model, the collection and the limits of the service.

    Attributes:
        accepts_images: whether the model reads image files.
        explains: whether the model shows where a phrase is.
        originals: whether the service sends the image files themselves, with their EXIF data.
        modes: of a search.
        columns: metadata of the items.
        examples: sentences to search by.
        max_depth: results that can be reached by paging.
    """

    model: str
    model_hash: str
    items: int
    languages: list[str]
    accepts_images: bool
    explains: bool
    originals: bool
    deletes: bool
    corrects: bool
    modes: list[Mode]
    columns: list[Column]
    examples: list[str]
    max_results: int
    max_depth: int
    max_image_bytes: int


@dataclass
class ServiceState:
    """Whether the service is alive, or ready to search."""

    status: str
    model: str | None = None


@dataclass
class Error:
    """Why a request was not answered."""

    error: Annotated[str, MaxLen(1000)]
