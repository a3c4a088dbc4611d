"""Bodies of requests, which FastAPI checks and describes in its OpenAPI document."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, MinLen

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
