"""Bodies of requests and answers; FastAPI checks the requests, and describes both in its OpenAPI document."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, MaxLen, MinLen

from bifocal.search.hits import Relevance
from bifocal.search.query import Mode

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
        mode: "vectors"; "hybrid" to find items by the words of their captions and metadata as well; "regions" to find
            items of which one region fits. The last two need text and nothing else to search by.
        where: condition of each metadata column: a value, a list of values, or {"min": a, "max": b}.
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
class ExplainRequest:
    """Heatmaps of a sentence's phrases in an item's image.

    Attributes:
        id: id of the item.
        text: sentence, which is split into phrases.
    """

    __pydantic_config__: ClassVar[Any] = STRICT
    id: Sentence
    text: Sentence


@dataclass
class Result:
    """One result.

    Attributes:
        id: id of the item.
        score: the number that sorts the results: the cosine with the query, plus the item's hubness bias if the query
            is a sentence; in the mode "hybrid", the sum of the reciprocal ranks; in the mode "regions", the score of
            the best region.
        probability: probability that the item is relevant; null if uncalibrated, for images, sums and regions.
        relevance: "relevant" from a probability of 0.5, if it is not below the threshold of the calibration; else
            "maybe"; null without a probability.
        captions: sentences of the item.
        metadata: values of the item.
        has_image: whether the item has a thumbnail.
        box: x0 y0 x1 y1 of the best region, as fractions of width and height; null in the other modes.
    """

    id: str
    score: float
    probability: float | None
    relevance: Relevance | None
    captions: list[str]
    metadata: dict[str, Any]
    has_image: bool
    box: tuple[float, float, float, float] | None = None


@dataclass
class Results:
    """Answer to a search.

    Attributes:
        results: best first.
        found: false if there is no result, or if the collection probably has nothing like the sentence: the results are
            then the closest items. Judged on the first page, for only a sentence in the mode "vectors"; else true.
        items: number of items that were searched.
        more: whether a further page has results.
        model: version of the model and index that answered.
        answer: id for the route "click"; null unless the clicks of two releases are compared.
    """

    results: list[Result]
    found: bool
    items: int
    more: bool
    model: str
    answer: str | None = None


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


@dataclass
class ComparisonState:
    """Comparison of two releases.

    Attributes:
        mode: "canary" or "shadow".
        share: of the clients that the candidate answers, or whose searches it repeats.
        state: "running", or why no candidate is compared now.
        report: releases, metrics with confidence intervals, and the sums that they come from; null before the first
            pair of releases.
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
        point: x and y of the highest value, as fractions of width and height: a guess. Null if the phrase is probably
            not in the image.
        heatmap: data URL of a PNG over the image stretched to a square; its opacity is the blurred cube of the heatmap,
            which is scaled to [0, 1]. Null without a point.
        probability: calibrated probability that the phrase is in the image; null if the model cannot tell.
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
class Item:
    """An item of the collection."""

    id: str
    captions: list[str]
    metadata: dict[str, Any]
    has_image: bool


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
    deletes: bool
    modes: list[Mode]
    columns: list[Column]
    examples: list[str]
    max_results: int
    max_depth: int
    max_image_bytes: int


@dataclass
class State:
    """Whether the service is alive, or ready to search."""

    status: str
    model: str | None = None


@dataclass
class Error:
    """Why a request was not answered."""

    error: Annotated[str, MaxLen(1000)]
