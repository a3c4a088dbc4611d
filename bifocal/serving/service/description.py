"""Summary of a collection for clients: languages, metadata, examples, and the order of its
items."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bifocal.datasets.base import META, SPLITS, UNCAPTIONED
from bifocal.datasets.languages import caption_languages
from bifocal.search.collection.format import DATE as DATE_NAME
from bifocal.search.collection.format import FOLDER as FOLDER_NAME
from bifocal.search.collection.format import SPLIT
from bifocal.search.items import Items
from bifocal.serving.service.schema import Column

FOLDER, DATE = META + FOLDER_NAME, META + DATE_NAME
EXAMPLES = 6
EXAMPLE_CHARACTERS = 60
MAX_VALUES = 500
"""Different values of a column that a client can choose from."""
SAMPLE = 200
"""Items whose captions are read."""
GROUP = 10
"""Items whose captions are one text for the detection of a language."""
RARE = 0.05
"""Share of the captions below which a language is not named."""


class ExampleQuery(NamedTuple):
    """Caption of an item, as a query to start with."""

    item_id: str
    text: str


@dataclass(frozen=True)
class CollectionSummary:
    """Columns of metadata and examples of a collection, and captions by item, spread over its
    rows."""

    columns: list[Column]
    examples: list[ExampleQuery]
    captions: Mapping[str, Sequence[str]]


def example_queries(captions: Mapping[str, Sequence[str]]) -> list[ExampleQuery]:
    """Return short captions of some items."""
    found: dict[str, ExampleQuery] = {}
    for item_id, texts in captions.items():
        if texts and 0 < len(shortest := min(texts, key=len)) <= EXAMPLE_CHARACTERS:
            text = shortest.rstrip(" .")
            found.setdefault(text, ExampleQuery(item_id, text))
    return [list(found.values())[row] for row in _spread(len(found), EXAMPLES)]


def languages(
    captions: Mapping[str, Sequence[str]], known: Callable[[str], Mapping[str, bool] | None]
) -> list[str]:
    """Return the languages of the captions of which a model knows most words, as ISO 639-1 codes,
    the most frequent first; none for a model on subwords, which spell all words.

    Args:
        known: returns whether the model knows each word of a sentence; None for subwords.
    """
    words = [(texts[0], known(texts[0]) or {}) for texts in captions.values() if texts]
    first = [text for text, found in words if 2 * sum(found.values()) > len(found)]
    groups = [first[start : start + GROUP] for start in range(0, len(first), GROUP)]
    if not groups:
        return []
    return [
        code
        for code, share in caption_languages(groups).items()
        if share >= RARE and code != "unknown"
    ]


def columns(items: pa.Table) -> list[Column]:
    """Return the metadata that a search can be restricted by, with the values of texts that have
    few."""
    found = []
    for name in items.column_names:
        if name.startswith(META) and (kind := _kind(items.schema.field(name).type)) is not None:
            values = pc.unique(items[name]).drop_null() if kind == "text" else []
            if name == FOLDER and len(values) < 2:
                continue
            if name == META + SPLIT and {*map(str, values)} <= {*SPLITS, UNCAPTIONED}:
                continue  # of the training, not of the user
            shown = sorted(map(str, values)) if 0 < len(values) <= MAX_VALUES else []
            found.append(Column(name.removeprefix(META), kind, shown))
    return found


def newest_rows(items: pa.Table) -> NDArray[np.int64]:
    """Return the rows of a table of items by the times of their column "date", the newest first;
    the last row first without this column. Items without a date are last.
    """
    rows = np.arange(len(items))[::-1]
    if DATE not in items.column_names or not pa.types.is_temporal(items.schema.field(DATE).type):
        return rows
    order = pc.array_sort_indices(
        items[DATE].combine_chunks().take(pa.array(rows)), order="descending"
    )
    newest: NDArray[np.int64] = rows[np.from_dlpack(order)]
    return newest


def summarize(table: pa.Table, rows: NDArray[np.int64], items: Items) -> CollectionSummary:
    """Return the summary of the items in some rows of a table."""
    chosen = {items.facts(row)["id"]: row for row in rows[_spread(len(rows), SAMPLE)].tolist()}
    captions = {item_id: items.captions(chosen[item_id]) for item_id in sorted(chosen)}
    return CollectionSummary(columns(table), example_queries(captions), captions)


def _spread(count: int, wanted: int) -> list[int]:
    """Return at most ``wanted`` of the numbers below ``count``, evenly spread."""
    return np.linspace(0, count - 1, min(count, wanted)).astype(int).tolist() if count else []


def _kind(type_: pa.DataType) -> Literal["text", "number", "time", "boolean"] | None:
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return "text"
    if pa.types.is_boolean(type_):
        return "boolean"
    if pa.types.is_temporal(type_):
        return "time"
    return "number" if pa.types.is_integer(type_) or pa.types.is_floating(type_) else None
