"""Bodies of answers, which FastAPI describes in its OpenAPI document."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import MaxLen

from bifocal.search.hits import Relevance
from bifocal.search.query import Mode


@dataclass(kw_only=True)
class Item:
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


@dataclass(kw_only=True)
class ItemDetails(Item):
    """An item with the size of its image file in bytes; null without a file."""

    bytes: int | None


@dataclass
class Page:
    """A page of the collection.

    Attributes:
        results: the newest first, by the column "date" of the metadata; without it, the last of the collection first.
        items: number of items that fulfill the filter.
        more: whether a further page has items.
    """

    results: list[Item]
    items: int
    more: bool


@dataclass(kw_only=True)
class Result(Item):
    """One result.

    Attributes:
        score: the number that sorts the results: the cosine with the query, plus the item's hubness bias if the query
            is a sentence; in the mode "hybrid", the sum of the reciprocal ranks; in the mode "regions", the score of
            the best region.
        probability: probability that the item is relevant; null if uncalibrated, for images, sums and regions.
        relevance: "relevant" from a probability of 0.5, if it is not below the threshold of the calibration; else
            "maybe"; null without a probability.
        box: x0 y0 x1 y1 of the best region, as fractions of width and height; null in the other modes.
    """

    score: float
    probability: float | None
    relevance: Relevance | None
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
        unknown: words of the query that the model does not know: the others were searched.
        answer: id for the route "click"; null unless the clicks of two releases are compared.
    """

    results: list[Result]
    found: bool
    items: int
    more: bool
    model: str
    unknown: list[str]
    answer: str | None = None


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
